"""The file of an image while it is written: beside its place, under a name of its own.

Another user may be able to write its folder, and can put a link in the place of any name in it. So the folder and the
file are held by descriptors: what is read, what gets a mode and what is renamed is the file that was written.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from envbuild.core.errors import PublishError
from envbuild.core.file_status import leads_to, on_disk
from envbuild.core.ownership import can_others_rename
from envbuild.core.store.permissions import finished_mode
from envbuild.core.unfinished_names import unfinished_name, unfinished_names

# Seconds without a write, after which an unfinished file without a lock is removed, where another machine may write it:
# its lock may not be seen here. On a disk of this machine a file without a lock has no writer.
STALE = 600
NO_MODES = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)  # of a file system without modes (vfat, CIFS, FUSE)
Stamp = tuple[int, int]  # size and time (ns), as `envbuild.core.store.json_files.stamp` has them
TRIES = 100  # names that a new file may need


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file that gets the name of `out` when it is published. `fd` and `folder`: descriptors of it and of its
    folder; `name`: its name until then."""

    out: Path
    folder: int
    name: str
    fd: int

    @property
    def handle(self) -> Path:
        """A path that leads to the file, even if another file has its name (proc_pid_fd(5))."""
        return Path(f"/proc/self/fd/{self.fd}")

    def publish(self) -> Stamp:
        """Give the file its mode and the name of `out`, and return its stamp. Raises PublishError if another user
        replaced it."""
        with _errors_at(self.out):
            try:
                os.fchmod(self.fd, finished_mode(Path(f"/proc/self/fd/{self.folder}")))
            except OSError as error:
                if error.errno not in NO_MODES:
                    raise
            os.rename(self.name, self.out.name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
            found = os.stat(self.out.name, dir_fd=self.folder, follow_symlinks=False)
        written = os.fstat(self.fd)
        if not os.path.samestat(found, written):
            raise PublishError(
                "another user replaced the file while it was written",
                "write it into a folder that no other user can write: -o FOLDER/",
                str(self.out),
            )
        return (written.st_size, written.st_mtime_ns)


def publish_image(file: OutputFile) -> Stamp:
    """Give a finished file its name, once it passed the check, and return its stamp."""
    from envbuild.squashfs.read.superblock import read_layout

    with file.handle.open("rb") as stream:
        read_layout(stream, str(file.out), padded=True)
    return file.publish()


@contextlib.contextmanager
def open_output(out: Path) -> Iterator[OutputFile]:
    """Create a file beside `out`; remove it at the end if it was not published."""
    with contextlib.ExitStack() as stack:
        with _errors_at(out):  # of the image, also where its folder is missing
            folder = os.open(out.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, folder)
        with _errors_at(out):
            _remove_stale(folder, out.name)
        name, file = _create(folder, out)
        stack.callback(_remove, name, folder)
        stack.callback(os.close, file)
        yield OutputFile(out, folder, name, file)


def _create(folder: int, out: Path) -> tuple[str, int]:
    """Create a locked file; returns its name and descriptor. Another process may remove it as stale before it is
    locked: then it gets another name. Raises PublishError for a file system on which no name works."""
    for _ in range(TRIES):
        name = unfinished_name(out.name)
        with _errors_at(out.with_name(name)):
            file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # the other process is about to remove it
            pass
        except OSError:  # a file system without locks: then it is never stale
            return name, file
        else:
            if leads_to(name, folder, file):
                return name, file
        os.close(file)
        _remove(name, folder)
    hint = "name a file on another file system: -o FILE"
    raise PublishError("the file system loses new files, or their locks", hint, str(out))


def _remove_stale(folder: int, name: str) -> None:
    """Remove the unfinished files of killed writers of `name`: each is as large as the image, and easy to overlook. A
    live writer holds its lock; where locks of another machine are not seen, its file is never old. Where others may
    rename entries, any file of this user could have such a name."""
    if can_others_rename(folder):
        return
    for other in filter(unfinished_names(name).fullmatch, os.listdir(folder)):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            if not stat.S_ISREG(os.stat(other, dir_fd=folder, follow_symlinks=False).st_mode):
                continue
            # Another file may have its name by now: O_NONBLOCK opens a FIFO without waiting for a writer.
            file = os.open(other, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            stack.callback(os.close, file)
            status = os.fstat(file)
            if stat.S_ISREG(status.st_mode):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if on_disk(file) or time.time() - status.st_mtime > STALE:
                    os.unlink(other, dir_fd=folder)


def _remove(name: str, folder: int) -> None:
    """Remove a file that did not get its name: where nothing can be removed, another error has the cause."""
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)


@contextlib.contextmanager
def _errors_at(path: Path) -> Iterator[None]:
    """Name the whole path in an OSError: the system call got a name alone."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise
