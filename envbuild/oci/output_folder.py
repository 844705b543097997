"""An output folder (a layout, a build context) while it is written: beside its place, under a name of its own.

Another user may be able to write the folder above, and can rename any entry there or put another in its place. So both
folders are open until the end, no other user may enter the new one until it has its name, and what is removed is the
folder that was checked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from envbuild.core.access_lists import remove_access_lists
from envbuild.core.errors import PublishError
from envbuild.core.file_status import leads_to, on_disk
from envbuild.core.folder_removal import remove_opened
from envbuild.core.ownership import can_others_rename, find_intrusion, own_users
from envbuild.core.shell import shell_word
from envbuild.core.unfinished_names import unfinished_name, unfinished_names

REPLACED = "another user replaced it while it was written"
HINT = "write it into a folder that no other user can write"
# Seconds after which an unfinished folder without a lock is removed, where another machine may write it, and an older
# folder that was moved away. On a disk of this machine a folder without a lock has no writer.
STALE = 86_400
ATTEMPTS = 10  # to make a folder that no other process takes for one of a killed writer
OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class OutputFolder:
    """A folder that gets the name of `out` when it is published. `fd` and `above`: descriptors of it and of the folder
    that it is in; `name`: its name until then; `mode`: its mode afterwards; `mark`: a file that an older one has;
    `older`: device and inode of what was at `out`, and may be removed."""

    out: Path
    above: int
    name: str
    fd: int
    mode: int
    mark: str
    older: tuple[int, int] | None = None

    @property
    def handle(self) -> Path:
        """A path that leads to the folder, even if another one has its name (proc_pid_fd(5))."""
        return Path(f"/proc/self/fd/{self.fd}")

    def publish(self) -> None:
        """Give the folder the name of `out`; an older one there is removed afterwards. Raises OSError, PublishError
        if another user replaced one of the two."""
        old = f"{self.name}.old"
        with contextlib.suppress(FileNotFoundError):
            self._rename(self.out.name, old)
        try:
            with contextlib.suppress(FileNotFoundError):
                if not self._may_remove(os.stat(old, dir_fd=self.above, follow_symlinks=False)):
                    raise PublishError(REPLACED, HINT, str(self.out))
            with contextlib.suppress(PermissionError):  # a file system that has no modes
                os.fchmod(self.fd, self.mode)
            self._rename(self.name, self.out.name)
            found = os.stat(self.out.name, dir_fd=self.above, follow_symlinks=False)
            if not os.path.samestat(found, os.fstat(self.fd)):
                raise PublishError(REPLACED, HINT, str(self.out))
        except (OSError, PublishError):
            with contextlib.suppress(OSError):  # nothing was there, or another folder is by now
                self._rename(old, self.out.name)
            raise
        self._remove_old(old)

    def _may_remove(self, found: os.stat_result) -> bool:
        """Return whether this is what was at `out` and was checked. Where only this user can put something else there,
        it may be a newer one, of another process."""
        if (found.st_dev, found.st_ino) == self.older:
            return True
        return not can_others_rename(self.above)

    def _rename(self, name: str, new: str) -> None:
        os.rename(name, new, src_dir_fd=self.above, dst_dir_fd=self.above)

    def _remove_old(self, name: str) -> None:
        """Remove what was at `out`: an older one, an empty folder, or a link to one."""
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            if stat.S_ISLNK(os.stat(name, dir_fd=self.above, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=self.above)
                return
            fd: int = os.open(name, OPEN, dir_fd=self.above)
            stack.callback(os.close, fd)
            names = os.listdir(fd)
            if not self._may_remove(os.fstat(fd)) or (names and self.mark not in names):
                raise PublishError(f"{REPLACED}; that is not removed: {name}", HINT, str(self.out))
            remove_opened(fd, name, self.above)


@contextlib.contextmanager
def open_output_folder(out: Path, mark: str, check: Callable[[Path], object]) -> Iterator[OutputFolder]:
    """Make a folder beside `out`, and the folders above it; remove it at the end if it was not published.

    check: called with a path to what is at `out`, which raises if that must not be removed.

    Raises OSError, PublishError if another user interferes."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        above = os.open(out.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, above)
        older = _check_older(out, above, check)
        _remove_stale(above, out.name)
        name, fd = _make_locked(above, out)
        stack.callback(os.close, fd)
        remove_access_lists(fd)
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        with contextlib.suppress(PermissionError):  # another user's, or a file system that has no modes
            os.fchmod(fd, mode & ~0o077)
        _refuse_replaced(fd, out)
        folder = OutputFolder(out, above, name, fd, mode, mark, older)
        stack.callback(_discard, folder)
        yield folder


def _make_locked(above: int, out: Path) -> tuple[str, int]:
    """Make an empty folder beside `out`; return its name and a descriptor that holds its lock. Another process may
    remove it as stale before it is locked: then it gets another name."""
    for _ in range(ATTEMPTS):
        name = unfinished_name(out.name)
        os.mkdir(name, dir_fd=above)
        with contextlib.suppress(FileNotFoundError):
            fd: int = os.open(name, OPEN, dir_fd=above)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # the other process is about to remove it
                os.close(fd)
                continue
            except OSError:  # a file system without locks of folders (NFS): then it is never stale
                return name, fd
            if leads_to(name, above, fd):
                return name, fd
            os.close(fd)
    raise PublishError("another process removed or locked the unfinished folder", HINT, str(out))


def _refuse_replaced(fd: int, out: Path) -> None:
    """Raise PublishError if an open folder is not the empty one that this process made."""
    if not _is_own(fd) or os.listdir(fd):
        raise PublishError("another user replaced the unfinished folder", HINT, str(out))


def _check_older(out: Path, above: int, check: Callable[[Path], object]) -> tuple[int, int] | None:
    """Check what is at `out`, by a descriptor of it; return its device and inode, None if nothing is there."""
    try:
        fd = os.open(out.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(fd)
        handle = Path(f"/proc/self/fd/{fd}")
        check(out if stat.S_ISLNK(status.st_mode) else handle)  # of a link only itself is removed
        if stat.S_ISDIR(status.st_mode) and any(handle.iterdir()):
            _refuse_foreign(out, handle)
        return status.st_dev, status.st_ino
    finally:
        os.close(fd)


def _refuse_foreign(out: Path, handle: Path) -> None:
    """Raise PublishError for an older folder that others can write: they could move a folder of this user into it, and
    that would be removed with it."""
    if found := find_intrusion(str(handle), own_users()):
        raise PublishError(
            f"it {found.reason}, so it is not replaced",
            f"name a new folder, or remove it: rm -r {shell_word(out)}",
            str(out),
        )


def _remove_stale(above: int, name: str) -> None:
    """Remove what killed writers of `name` left in the folder `above`: each is as large as the layout. A live writer
    holds its lock; where locks of another machine are not seen, its folder is never old. Where others may rename
    entries, any folder of this user could have such a name."""
    if can_others_rename(above):
        return
    names = os.listdir(above)
    # An older folder that was moved away is the only one until a newer one has its name.
    unfinished = unfinished_names(name, r"(\.old)?" if name in names else "")
    for other in filter(unfinished.fullmatch, names):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            fd: int = os.open(other, OPEN, dir_fd=above)
            stack.callback(os.close, fd)
            status = os.fstat(fd)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unlocked = on_disk(fd) and not other.endswith(".old")  # that one never has a lock
            if status.st_uid == os.geteuid() and (unlocked or time.time() - status.st_ctime > STALE):
                remove_opened(fd, other, above)


def _is_own(folder: int) -> bool:
    """Return whether an open folder belongs to the user that new files belong to: on some file systems that is not the
    user of this process."""
    name = f".{secrets.token_hex(8)}"
    try:
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    except PermissionError:
        return False
    try:
        os.unlink(name, dir_fd=folder)
        return os.fstat(file).st_uid == os.fstat(folder).st_uid
    finally:
        os.close(file)


def _discard(folder: OutputFolder) -> None:
    """Remove the folder, also if it was renamed, unless it was published."""
    with contextlib.suppress(OSError):
        if os.path.samestat(os.stat(folder.out.name, dir_fd=folder.above, follow_symlinks=False), os.fstat(folder.fd)):
            return
    with contextlib.suppress(OSError):
        remove_opened(folder.fd, folder.name, folder.above)
