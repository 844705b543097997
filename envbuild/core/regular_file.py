"""Files that others wrote, opened only if they are regular ones: a FIFO would wait for ever, a device may act when it
is opened."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import IO

MAX_TEXT = 1 << 20  # bytes of a file that a user writes


class NotRegularError(OSError):
    """A path that is a FIFO, a socket, a device or a folder."""


class TooLargeError(OSError):
    """A file with more bytes than its reader accepts."""


class PinnedFile:
    """A descriptor of a file, closed with the last reference to this object: the file that was checked, whichever has
    its name by now."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)

    @property
    def path(self) -> Path:
        """A path that leads to this file, also if another one has its name (proc_pid_fd(5))."""
        return Path(f"/proc/self/fd/{self.fd}")


def mode_at(path: Path, *, follow: bool = True) -> int:
    """Return the mode of the file to which a path leads (without `follow`: of a link itself); 0 for none that this user
    can see, or if no path can be so.

    `Path.is_file` and `Path.is_dir` raise PermissionError for a link of another user into a folder that is closed here.
    """
    try:
        return path.stat(follow_symlinks=follow).st_mode
    except (OSError, ValueError):
        return 0


def pin_regular(path: Path) -> PinnedFile:
    """Open a regular file, and no link, for as long as the result is referenced. Raises NotRegularError, OSError."""
    with open_regular(path, buffering=0, follow=False) as file:
        return pin(file)


def pin(file: IO[bytes]) -> PinnedFile:
    """Return a descriptor of an open file."""
    return PinnedFile(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 0))


def open_regular(path: Path, *, buffering: int = -1, follow: bool = True) -> IO[bytes]:
    """Open a regular file for reading; `follow`: or a symbolic link to one.

    Raises NotRegularError for anything else, OSError.
    """
    if not stat.S_ISREG(path.stat(follow_symlinks=follow).st_mode):
        raise NotRegularError(f"{path} is not a regular file")
    # Another file may have its name by now: O_NONBLOCK opens a FIFO without waiting for a writer.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            raise NotRegularError(f"{path} is not a regular file") from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NotRegularError(f"{path} is not a regular file")
        return os.fdopen(fd, "rb", buffering=buffering)
    except BaseException:
        os.close(fd)
        raise


def read_bounded(path: Path, limit: int, *, follow: bool = True) -> bytes:
    """Return the bytes of a regular file, at most `limit`; `follow`: or of a symbolic link to one.

    Raises TooLargeError, NotRegularError, OSError.
    """
    with open_regular(path, follow=follow) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise TooLargeError(f"the file is larger than {limit >> 20} MiB")
    return data
