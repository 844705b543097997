"""The permissions of a store: what a group shares, and what only its builder may enter.

Entries of a folder that the group may write have the folder's mode, with any umask. What a user works in (trees of
layers, work folders, logs, parts of downloads, caches of other programs) is in a folder of that user alone: a tree may
hold setuid programs and file capabilities, which would run as its builder, and a user who can replace a name can make
a command change a file elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from pathlib import Path
from typing import IO

from envbuild.core.access_lists import remove_access_lists
from envbuild.core.file_status import file_status

GROUP, OTHERS, STICKY = 0o020, 0o002, 0o1000  # may write, twice; only the owner of an entry may replace it
SETGID = 0o2000  # entries get the folder's group: a folder that is writable by the umask alone does not have it
OWN = re.compile(r"user-[0-9]{1,10}(-[0-9a-f]{8})?")  # the name of a user's folder in a shared store
TO_BE_SHARED = 0o1000  # of a file: it has no other meaning there (inode(7)), and a private file does not have it
NO_GROUP = 65534  # a group that has no number in this user namespace (user_namespaces(7))


def is_shared(folder: Path) -> int:
    """Return the mode of a folder that was made for a group to share; 0 for others, such as /tmp, which every user may
    write, or one that an umask of 002 left writable."""
    mode = folder.stat().st_mode & 0o7777
    return mode if mode & GROUP and mode & SETGID and not mode & OTHERS else 0


def make_shared_folder(path: Path, *, sticky: bool = False, closed: bool = False) -> None:
    """Make a folder, if it does not exist, with the mode of its parent in a shared store: all members write in it.

    sticky: only their owners may replace its entries, as in the store's own folder. closed: others may not enter it.
    """
    if path.is_dir():
        return
    mode = is_shared(path.parent) & ~STICKY
    if not mode:
        path.mkdir(mode=0o700 if closed else 0o755, exist_ok=True)  # with any umask
        return
    mode = (mode | STICKY if sticky else mode) & (~0o007 if closed else ~0)
    from envbuild.core.userns import file_calls  # a store is made once

    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    temporary.mkdir(mode=0o700)
    try:
        change_own_folder(temporary, mode)
        file_calls.rename_new(temporary, path)  # complete at once: another user may need it in this moment
    except OSError:
        temporary.rmdir()
        if not path.is_dir():  # else another process made it
            raise


def change_own_folder(path: Path, mode: int) -> None:
    """Change the mode of a folder of this user. Raises OSError for a link, and for another user's."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        os.fchmod(folder, mode)
    finally:
        os.close(folder)


def make_store_folder(path: Path) -> None:
    """Make the folder of a store, and those above it, writable by this user alone with any umask."""
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(mode=0o755, exist_ok=True)


def make_private_folder(path: Path) -> None:
    """Make a folder that only its owner may enter; its entries get their owner's group, and modes by the umask."""
    path.mkdir(mode=0o700)
    remove_access_lists(path)
    path.chmod(0o700)  # without the setgid bit of a shared parent


def close_folder(path: Path, rights: int = 0o077) -> bool:
    """Take `rights` from a folder: by default all that its group and third-party users have.

    Returns whether that changed it. False for a missing folder, a link, and a folder of another user.
    """
    with contextlib.suppress(OSError):
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            mode = os.fstat(folder).st_mode & 0o7777
            if mode & rights:
                os.fchmod(folder, mode & ~rights)
                return True
        finally:
            os.close(folder)
    return False


def own_place(root: Path) -> Path:
    """Return the folder in which this user works: the store `root`, or a folder in it where a group shares it.

    A folder is recognized by its owner and its mode: in a user namespace its user has another number. If there is none,
    the folder does not exist: another member knows its name, and may have made one of that name.
    """
    try:
        if not is_shared(root):
            return root
    except FileNotFoundError:
        return root
    named = root / f"user-{os.geteuid()}"
    if not is_own_folder(named):
        with contextlib.suppress(OSError):
            found = (entry for entry in sorted(root.iterdir()) if OWN.fullmatch(entry.name) and is_own_folder(entry))
            if own := next(found, None):
                return own
        if os.path.lexists(named):
            return _other_name(named)
    return named


def make_own_place(root: Path) -> Path:
    """Return `own_place`, and make it if it does not exist; only this user may enter it. Raises OSError."""
    own = own_place(root)
    while own != root and not is_own_folder(own):
        try:
            make_private_folder(own)
        except FileExistsError:  # another process of this user made it, or another user
            own = own if is_own_folder(own) else _other_name(own)
    return own


def _other_name(named: Path) -> Path:
    return named.with_name(f"user-{os.geteuid()}-{os.urandom(4).hex()}")


def is_own_folder(path: Path) -> bool:
    """Return whether a path is a folder of this user, no link, and closed to all others.

    Another member may have moved a folder of this user to the name, in which both may write.
    """
    try:
        found = file_status(path, follow=False)
    except OSError:
        return False
    mode = found.stat.st_mode
    return stat.S_ISDIR(mode) and found.owner == os.geteuid() and not mode & 0o077


def share_file(path: Path) -> None:
    """Let the group that shares the folder of a file read and write it: to lock it, or to record its use.

    Only a file that a process of this user in a user namespace put there, where the group has no number, and marked:
    another member may have moved a private file of this user to the name.
    """
    if not is_shared(path.parent):
        return
    group = path.parent.stat().st_gid
    with contextlib.suppress(OSError):  # it is another user's, who did so; or no regular file, and not this user's
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if os.fstat(file).st_mode & TO_BE_SHARED:
                share_open_file(file, group)
        finally:
            os.close(file)


def share_open_file(file: int, group: int) -> None:
    """Let `group` read and write the regular file with one name that is open as `file`; mark it for `share_file` where
    the group has no number. Raises OSError."""
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        return
    if status.st_gid != group:
        if group == NO_GROUP:
            os.fchmod(file, status.st_mode & 0o7777 | TO_BE_SHARED)
            return
        os.fchown(file, -1, group)
    os.fchmod(file, status.st_mode & 0o7777 & ~TO_BE_SHARED | 0o060)


def move_into_store(source: Path, target: Path) -> None:
    """Rename a finished file, which is in a folder of this user, to its place in the store."""
    file = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fchmod(file, os.fstat(file).st_mode & 0o755)  # with any umask
        source.replace(target)
        if is_shared(target.parent):  # by the descriptor: another member may have replaced the name by now
            share_open_file(file, target.parent.stat().st_gid)
    finally:
        os.close(file)


def record_use(path: Path) -> None:
    """Record the use of a file of the store, so that it is not removed."""
    with contextlib.suppress(PermissionError):  # another user's, of a store that is not a group's
        os.utime(path, follow_symlinks=False)


def finished_mode(folder: Path) -> int:
    """Return the mode of a finished file in `folder`: readable by all, less what the umask takes; in a store that a
    group shares, the folder decides who may read."""
    if is_shared(folder):
        return 0o644
    found = re.search(r"^Umask:\s*([0-7]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return 0o644 & ~int(found[1], 8) if found else 0o644  # os.umask could only read it by changing it for all threads


def open_lock_file(path: Path) -> IO[bytes]:
    """Open a file to lock; make it if it does not exist. Raises OSError, for a link too."""
    with contextlib.suppress(FileExistsError):
        return os.fdopen(_make_lock_file(path), "rb")
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        file = os.open(path, os.O_RDWR | flags)  # NFS wants it for a lock
    except PermissionError:
        file = os.open(path, os.O_RDONLY | flags)
    return os.fdopen(file, "rb")


def _make_lock_file(path: Path) -> int:
    """Make a file, with its permissions from the first moment on: another user may open it at once."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    if not is_shared(path.parent) or os.path.lexists(path):
        return os.open(path, flags, 0o666)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    file = os.open(temporary, flags, 0o600)
    try:
        share_open_file(file, path.parent.stat().st_gid)
        path.hardlink_to(temporary)
    except BaseException:
        os.close(file)
        raise
    finally:
        temporary.unlink()
    return file
