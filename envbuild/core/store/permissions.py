"""A store that a group of users shares: what is made in a folder that they may write is as open as the folder, whatever
the umask of who makes it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import IO

GROUP, OTHERS = 0o020, 0o002  # may write


def is_shared(folder: Path) -> int:
    """The mode of a folder that a group shares; 0 for another one, such as /tmp, where anybody may write."""
    mode = folder.stat().st_mode & 0o7777
    return mode if mode & GROUP and not mode & OTHERS else 0


def folder_in(path: Path) -> None:
    """Make a folder, if there is none, as open to its group as the one that it is in."""
    try:
        path.mkdir()
    except FileExistsError:
        return
    if mode := is_shared(path.parent):
        path.chmod(mode)


def share(path: Path) -> None:
    """Let the group that shares the folder of a file read and write it, too: to lock it, or to note its use."""
    if is_shared(path.parent):
        with contextlib.suppress(OSError):  # it is another user's, who did so
            path.chmod(path.stat().st_mode & 0o7777 | 0o060)


def give(source: Path, target: Path) -> None:
    """Rename a finished file to its place in the store."""
    source.replace(target)
    share(target)


def used(path: Path) -> None:
    """Note that a file of the store was wanted lately, so that it stays."""
    with contextlib.suppress(PermissionError):  # another user's, of a store that is not a group's
        os.utime(path)


def lock_file(path: Path) -> IO[bytes]:
    """A file to lock, made when it is missing."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        share(path)
    except FileExistsError:
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # NFS wants it for a lock
        except PermissionError:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return os.fdopen(file, "rb")
