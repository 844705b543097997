"""The permissions of a store: what a group shares, and what only its builder may enter.

Entries of a folder that the group may write have the folder's mode, with any umask. Folders with trees of files
(layers, work folders, storage of other engines) are closed: a tree may hold setuid programs and file capabilities,
which would run as its builder, such as root, for every user who can reach them.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import IO

GROUP, OTHERS = 0o020, 0o002  # may write
OWN = re.compile(r"[0-9]{1,10}(-[0-9a-f]{8})?")  # the name of a user's folder in a shared one
NO_GROUP = 65534  # a group that has no number in this user namespace (user_namespaces(7))


def is_shared(folder: Path) -> int:
    """Return the mode of a folder that a group shares; 0 for others, such as /tmp, which every user may write."""
    mode = folder.stat().st_mode & 0o7777
    return mode if mode & GROUP and not mode & OTHERS else 0


def make_shared_folder(path: Path, *, closed: bool = False) -> None:
    """Make a folder, if it does not exist, with the mode of its parent in a shared store.

    closed: only the group may enter it; outside of a shared store, only its owner.
    """
    if path.is_dir():
        return
    mode = is_shared(path.parent)
    if not mode:
        path.mkdir(mode=0o700 if closed else 0o777, exist_ok=True)
        return
    from envbuild.core.userns import libc  # a store is made once

    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    temporary.mkdir(mode=0o700)
    try:
        temporary.chmod(mode & ~0o007 if closed else mode)
        libc.rename_new(temporary, path)  # complete at once: another user may need it in this moment
    except OSError:
        temporary.rmdir()
        if not path.is_dir():  # else another process made it
            raise


def make_private_folder(path: Path) -> None:
    """Make a folder that only its owner may enter, and whose entries get their owner's group."""
    path.mkdir(mode=0o700)
    path.chmod(0o700)  # without the setgid bit of a shared parent


def close_folder(path: Path) -> bool:
    """Take a folder's permissions for others from it, and those of the group unless the group shares its parent.

    Returns whether that changed it. False for a missing folder, and for a folder of another user.
    """
    try:
        mode = path.stat().st_mode & 0o7777
        wanted = mode & (~0o007 if is_shared(path.parent) else ~0o077)
        if wanted != mode:
            path.chmod(wanted)
    except OSError:
        return False
    return wanted != mode


def own_folder(path: Path) -> Path:
    """Return this user's part of the folder `path` of a store: all of it, or a folder in it where users share it.

    A folder is recognized by its owner: in a user namespace its user has another number.
    """
    try:
        whole = path.stat().st_uid == os.geteuid() and not is_shared(path.parent)
    except FileNotFoundError:
        return path
    if whole:
        return path
    named = path / str(os.geteuid())
    if not is_own_folder(named):
        with contextlib.suppress(OSError):
            found = (entry for entry in sorted(path.iterdir()) if OWN.fullmatch(entry.name) and is_own_folder(entry))
            return next(found, named)
    return named


def make_own_folder(path: Path) -> Path:
    """Return `own_folder`, and make it if it does not exist; only this user may enter it. Raises OSError."""
    make_shared_folder(path, closed=True)
    own = own_folder(path)
    if own == path:
        return own
    mode = path.stat().st_mode & 0o7777
    if path.stat().st_uid == os.geteuid() and not mode & GROUP and (shared := is_shared(path.parent)):
        path.chmod(shared & ~0o007)  # until now it was this user's alone
    if os.path.lexists(own) and not is_own_folder(own):  # the number is another user's, of a user namespace
        own = own.with_name(f"{own.name}-{os.urandom(4).hex()}")
    with contextlib.suppress(FileExistsError):
        make_private_folder(own)
    return own


def move_to_own_folder(path: Path) -> bool:
    """Move what this user has directly in the folder `path`, from before users shared it, to `own_folder`.

    Returns whether there was anything.
    """
    own, moved = own_folder(path), False
    if own == path:
        return False
    for entry in list(path.iterdir()):
        if not OWN.fullmatch(entry.name) and is_own_folder(entry):
            with contextlib.suppress(OSError):
                entry.rename(own / entry.name)
                moved = True
    return moved


def is_own_folder(path: Path) -> bool:
    """Return whether a path is a folder of this user, and no link."""
    try:
        return path.is_dir() and path.lstat().st_uid == os.geteuid() and not path.is_symlink()
    except OSError:
        return False


def share_file(path: Path) -> None:
    """Let the group that shares the folder of a file read and write it: to lock it, or to record its use."""
    folder = path.parent.stat()
    if is_shared(path.parent):
        with contextlib.suppress(OSError):  # it is another user's, who did so
            status = path.stat()
            if status.st_gid != folder.st_gid:
                if folder.st_gid == NO_GROUP:
                    return
                os.chown(path, -1, folder.st_gid)
            path.chmod(status.st_mode & 0o7777 | 0o060)


def move_into_store(source: Path, target: Path) -> None:
    """Rename a finished file to its place in the store."""
    source.replace(target)
    share_file(target)


def record_use(path: Path) -> None:
    """Record the use of a file of the store, so that it is not removed."""
    with contextlib.suppress(PermissionError):  # another user's, of a store that is not a group's
        os.utime(path)


def finished_mode(folder: Path) -> int:
    """Return the mode of a finished file in `folder`: readable by all, less what the umask takes; in a store that a
    group shares, the folder decides who may read."""
    if is_shared(folder):
        return 0o644
    found = re.search(r"^Umask:\s*([0-7]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return 0o644 & ~int(found[1], 8) if found else 0o644  # os.umask could only read it by changing it for all threads


def open_lock_file(path: Path) -> IO[bytes]:
    """Open a file to lock; make it if it does not exist."""
    with contextlib.suppress(FileExistsError):
        return os.fdopen(_make_lock_file(path), "rb")
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # NFS wants it for a lock
    except PermissionError:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return os.fdopen(file, "rb")


def _make_lock_file(path: Path) -> int:
    """Make a file, with its permissions from the first moment on: another user may open it at once."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    if not is_shared(path.parent) or path.exists():
        return os.open(path, flags, 0o666)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    file = os.open(temporary, flags, 0o600)
    try:
        share_file(temporary)
        path.hardlink_to(temporary)
    except BaseException:
        os.close(file)
        raise
    finally:
        temporary.unlink()
    return file
