"""Ways to files in a folder that another user may write. A link there could lead to a private file of the caller, or a
name be that of one which was moved there, and its content would get to where others read it, such as the store."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from envbuild.core.file_status import FileStatus, file_status
from envbuild.core.link_walk import Place, Step, walk
from envbuild.core.ownership import Intrusion, find_intrusion, find_renamer, own_users, private_groups
from envbuild.core.regular_file import NotRegularError
from envbuild.core.unmapped_root import is_unmapped
from envbuild.core.user_numbers import UNKNOWN
from envbuild.core.userns import file_calls

ENTRY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class ForeignLinkError(OSError):
    """A link of another user leads to a file that is not that user's."""


class MovedFileError(OSError):
    """Another user may have moved a private file to this name."""


def open_judged(path: Path, users: frozenset[int]) -> IO[bytes]:
    """Open a regular file for reading. Each link on the way must be one of `users`, or lead to a file of its own owner.
    A private file of `users` must not be in a folder that another user can write: that user may have moved it there.

    Every entry is judged by a descriptor of it, so that no user can exchange it meanwhile. Raises ForeignLinkError,
    MovedFileError, NotRegularError, OSError.
    """
    with ExitStack() as opened:
        node, folders = _walk_judged(path, users, opened)
        status, owner = (found := file_status(node)).stat, found.owner
        if not stat.S_ISREG(status.st_mode):
            raise NotRegularError(f"{path} is not a regular file")
        if owner in users and not status.st_mode & stat.S_IROTH and (other := _find_mover(folders, status)):
            raise MovedFileError(errno.EPERM, str(other.reason), str(other.path))
        return os.fdopen(os.open(f"/proc/self/fd/{node}", os.O_RDONLY | os.O_CLOEXEC), "rb")


def _find_mover(folders: Sequence[int], file: os.stat_result) -> Intrusion | None:
    """Return how a user who cannot read a file can have moved it, or a folder on the way to it, to where it is; None if
    none can. `folders`: descriptors, the file's own last."""
    users, found = own_users(), file_status(folders[-1])
    last = found.stat
    movers = [(one, find_renamer(f"/proc/self/fd/{one}".encode(), users, private_groups)) for one in folders[:-1]]
    group_reads = file.st_mode & stat.S_IRGRP and file.st_gid == last.st_gid
    if not (found.owner in users and group_reads and not last.st_mode & stat.S_IWOTH):
        # With the sticky bit others can put in what is not there yet.
        movers.append((folders[-1], find_intrusion(f"/proc/self/fd/{folders[-1]}", users, private_groups)))
    named = (found._replace(path=Path(f"/proc/self/fd/{one}").readlink()) for one, found in movers if found)
    return next(named, None)


def check_links(path: Path, users: Collection[int], *, own: bool = False) -> None:
    """Judge the links on the way to a file or folder as `open_judged`; `own`: each must be one of `users`. Raises
    ForeignLinkError, OSError."""
    with ExitStack() as opened:
        _walk_judged(path, users, opened, own=own)


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder, or a link of this user or root to one: a link of another user, where a file is
    to be written, would choose the folder for it."""
    if not path.is_dir():
        return False
    found = file_status(path, follow=False)
    return not stat.S_ISLNK(found.stat.st_mode) or found.owner in own_users()


def _is_of_process(link: int, folder: int, target: bytes) -> bool:
    """Return whether a link is one of another process in /proc (proc_pid_root(5)): it leads elsewhere than its text
    states, to where that process chooses."""
    if not target.startswith(b"/") and b":[" not in target:
        return False
    if file_calls.file_system(link) != file_calls.PROC:
        return False
    try:
        own = [os.stat(f"/proc/self{place}") for place in ("", "/fd")]  # noqa: PTH116
    except OSError:
        return True
    place = os.fstat(folder)
    return (place.st_dev, place.st_ino) not in [(found.st_dev, found.st_ino) for found in own]


def _is_of_root(folder: int, link: FileStatus) -> bool:
    """Return whether a link without a known owner is root's: no other user can have made it in its folder."""
    place = f"/proc/self/fd/{folder}".encode()
    return is_unmapped(link.stat) and not find_renamer(place, own_users(), private_groups, sticky=False)


def _walk_judged(
    path: Path, users: Collection[int], opened: ExitStack, *, own: bool = False
) -> tuple[int, Sequence[int]]:
    """Return descriptors of what `path` leads to, and of all folders on the way, its own last; `opened` closes them."""
    owners: set[int] = set()  # of links
    folders: dict[int, None] = {}

    def enter(folder: int, name: bytes, last: bool) -> Step[int] | None:
        try:
            fd = os.open(name, ENTRY, dir_fd=folder)
        except FileNotFoundError:
            return None
        opened.callback(os.close, fd)
        folders.pop(folder, None)
        folders[folder] = None
        found = file_status(fd)
        if not stat.S_ISLNK(found.stat.st_mode):
            return Step(fd, None, stat.S_ISDIR(found.stat.st_mode))
        if found.owner not in users and not _is_of_root(folder, found):
            owners.add(UNKNOWN if is_unmapped(found.stat) else found.owner)
        target = os.readlink(b"", dir_fd=fd)
        if _is_of_process(fd, folder, target):
            raise ForeignLinkError(errno.EPERM, "the link of a process is on the way", str(path))
        return Step(fd, target)

    root = os.open("/", ENTRY | os.O_DIRECTORY)
    opened.callback(os.close, root)
    place = walk(Place((root,)), os.fsencode(path.absolute()), enter)
    foreign = ForeignLinkError(errno.EPERM, "a link of another user leads to it", str(path))
    if own and owners:
        raise foreign
    if place is None or place.missing:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    if UNKNOWN in owners or owners - {file_status(place.node).owner}:
        raise foreign
    return place.node, tuple(folders)
