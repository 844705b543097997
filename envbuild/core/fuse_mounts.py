"""File systems of users (FUSE): who mounted one answers for all owners and modes in it, also for those of root."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")  # proc_pid_mountinfo(5)
UID_MAP = Path("/proc/self/uid_map")
UNKNOWN = 65534  # a user without a number in this user namespace (user_namespaces(7)), or that is not stated


@functools.lru_cache(maxsize=256)
def fuse_user(device: int) -> int | None:
    """Return the user who mounted the FUSE file system with this device number; None for any other file system.

    The kernel states that user for each mount (``user_id=`` of mount.fuse3(8)); administrators mount theirs, such as
    glusterfs, as root. Of the texts in the list that users choose it escapes blanks, tabs and line feeds alone."""
    for kind, options in _mounts_of(device):
        if kind in (b"fuse", b"fuseblk") or kind.startswith(b"fuse."):
            found = re.search(rb"(?:^|,)user_id=([0-9]+)(?:,|$)", options)
            return _own_number(int(found[1])) if found else UNKNOWN
    return None


@functools.lru_cache(maxsize=256)
def is_process_files(device: int) -> bool:
    """Return whether a device number is that of a /proc, whose links lead elsewhere than their text states."""
    return any(kind == b"proc" for kind, _ in _mounts_of(device))


def _mounts_of(device: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield (type, options of the file system) of the mounts with a device number."""
    try:
        lines = MOUNTS.read_bytes().split(b"\n")
    except OSError:
        return
    place = b"%d:%d" % (os.major(device), os.minor(device))
    for line in lines:
        fields = line.split(b" ")
        if len(fields) >= 10 and fields[2] == place and b"-" in fields[6:]:
            yield fields[fields.index(b"-", 6) + 1], fields[-1]


def owner_of(status: os.stat_result) -> int:
    """Return the user who decides about a file: its owner; in a FUSE file system of another user than root, that user.
    The kernel shows there what that user's program states, also root or the caller."""
    return fuse_user(status.st_dev) or status.st_uid


def _own_number(user: int) -> int:
    """Return the number in this user namespace of a user of the machine."""
    for line in UID_MAP.read_text().splitlines():
        inside, outside, count = map(int, line.split())
        if outside <= user < outside + count:
            return inside + user - outside
    return UNKNOWN
