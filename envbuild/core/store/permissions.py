"""A store that a group of users shares: entries of a folder that the group may write have the folder's mode, with any
umask.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import IO

GROUP, OTHERS = 0o020, 0o002  # may write


def is_shared(folder: Path) -> int:
    """Return the mode of a folder that a group shares; 0 for others, such as /tmp, which every user may write."""
    mode = folder.stat().st_mode & 0o7777
    return mode if mode & GROUP and not mode & OTHERS else 0


def make_shared_folder(path: Path) -> None:
    """Make a folder, if it does not exist, with the mode of its parent in a shared store."""
    try:
        path.mkdir()
    except FileExistsError:
        return
    if mode := is_shared(path.parent):
        path.chmod(mode)


def share_file(path: Path) -> None:
    """Let the group that shares the folder of a file read and write it: to lock it, or to record its use."""
    if is_shared(path.parent):
        with contextlib.suppress(OSError):  # it is another user's, who did so
            path.chmod(path.stat().st_mode & 0o7777 | 0o060)


def move_into_store(source: Path, target: Path) -> None:
    """Rename a finished file to its place in the store."""
    source.replace(target)
    share_file(target)


def record_use(path: Path) -> None:
    """Record the use of a file of the store, so that it is not removed."""
    with contextlib.suppress(PermissionError):  # another user's, of a store that is not a group's
        os.utime(path)


def open_lock_file(path: Path) -> IO[bytes]:
    """Open a file to lock; make it if it does not exist."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        share_file(path)
    except FileExistsError:
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # NFS wants it for a lock
        except PermissionError:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return os.fdopen(file, "rb")
