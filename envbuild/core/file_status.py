"""The status of a file with the user who decides about it, which in a FUSE file system is not the stated owner."""

from __future__ import annotations

import os
from typing import NamedTuple

from envbuild.core.fuse_mounts import mounter_of
from envbuild.core.user_numbers import UNKNOWN

ENTRY = os.O_PATH | os.O_CLOEXEC
NO_ANSWER = os.stat_result((0, 0, 0, 0, UNKNOWN, UNKNOWN, 0, 0, 0, 0))


class FileStatus(NamedTuple):
    """The status of a file, and the user who mounted the FUSE file system that it is in (None: it is in another)."""

    stat: os.stat_result
    mounter: int | None

    @property
    def owner(self) -> int:
        """The user who decides about the file: its owner; in a FUSE file system of another user than root, that user.
        The kernel shows there what that user's program states, also root or the caller."""
        return self.mounter or self.stat.st_uid


def file_status(place: int | str | bytes | os.PathLike[str], *, follow: bool = True) -> FileStatus:
    """Return the status of an open file, or of the one at a path; `follow`: of what a link there points at.

    Both are of the same file: another user may exchange what is at a path, or unmount it, meanwhile. Where a user's
    file system answers nothing, the file has neither a type nor a known owner. Raises OSError.
    """
    if not isinstance(place, int):
        file = os.open(place, ENTRY if follow else ENTRY | os.O_NOFOLLOW)
        try:
            return file_status(file)
        finally:
            os.close(file)
    mounter = mounter_of(place)
    try:
        return FileStatus(os.fstat(place), mounter)
    except OSError:
        if not mounter:
            raise
        return FileStatus(NO_ANSWER, mounter)


def leads_to(name: str, folder: int, file: int) -> bool:
    """Return whether a name in an open folder is that of an open file. Not all file systems know the number of links
    of a file."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(file))


def on_disk(file: int) -> bool:
    """Return whether a file is on a disk of this machine: file systems of the network and of the memory have no
    device."""
    return os.major(os.fstat(file).st_dev) != 0
