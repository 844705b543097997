"""Ways to files in a folder that another user may write. A link there could lead to a private file of the caller, whose
content would get to where others read it, such as the store."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from envbuild.core.link_walk import Place, Step, walk
from envbuild.core.regular_file import NotRegularError

ENTRY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class ForeignLinkError(OSError):
    """A link of another user leads to a file that is not that user's."""


def open_judged(path: Path, users: Collection[int]) -> IO[bytes]:
    """Open a regular file for reading. Each link on the way must be one of `users`, or lead to a file of its own owner.

    Every entry is judged by a descriptor of it, so that no user can exchange it meanwhile. Raises ForeignLinkError,
    NotRegularError, OSError.
    """
    with ExitStack() as opened:
        node = _walk_judged(path, users, opened)
        if not stat.S_ISREG(os.fstat(node).st_mode):
            raise NotRegularError(f"{path} is not a regular file")
        return os.fdopen(os.open(f"/proc/self/fd/{node}", os.O_RDONLY | os.O_CLOEXEC), "rb")


def check_links(path: Path, users: Collection[int]) -> None:
    """Judge the links on the way to a file or folder as `open_judged`. Raises ForeignLinkError, OSError."""
    with ExitStack() as opened:
        _walk_judged(path, users, opened)


def _walk_judged(path: Path, users: Collection[int], opened: ExitStack) -> int:
    """Return a descriptor of what `path` leads to, which `opened` closes."""
    owners: set[int] = set()  # of links

    def enter(folder: int, name: bytes, last: bool) -> Step[int] | None:
        try:
            fd = os.open(name, ENTRY, dir_fd=folder)
        except FileNotFoundError:
            return None
        opened.callback(os.close, fd)
        status = os.fstat(fd)
        if not stat.S_ISLNK(status.st_mode):
            return Step(fd, None, stat.S_ISDIR(status.st_mode))
        if status.st_uid not in users:
            owners.add(status.st_uid)
        return Step(fd, os.readlink(b"", dir_fd=fd))

    root = os.open("/", ENTRY | os.O_DIRECTORY)
    opened.callback(os.close, root)
    place = walk(Place((root,)), os.fsencode(path.absolute()), enter)
    if place is None or place.missing:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    owner = os.fstat(place.node).st_uid
    if owners - {owner}:
        raise ForeignLinkError(errno.EPERM, "a link of another user leads to it", str(path))
    return place.node
