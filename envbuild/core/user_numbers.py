"""The numbers of users and groups in this process's user namespace (user_namespaces(7))."""

from __future__ import annotations

import os
from pathlib import Path

UID_MAP, GID_MAP = Path("/proc/self/uid_map"), Path("/proc/self/gid_map")
UNMAPPED = 65534  # what the kernel shows for a user, or a group, without a number here
UNKNOWN = -1  # no user has this number (chown(2))


def in_user_namespace() -> bool:
    """Return whether the users of this process are not those of the machine."""
    try:
        return UID_MAP.read_text().split() != ["0", "0", "4294967295"]
    except OSError:
        return False


def real_user() -> int:
    """Return the number that the user of this process has outside of its user namespace."""
    return _number_outside(os.geteuid(), UID_MAP)


def real_group() -> int:
    """Return the number that the group of this process has outside of its user namespace."""
    return _number_outside(os.getegid(), GID_MAP)


def number_here(user: int) -> int:
    """Return the number of a user whom the kernel states by a number of the machine or of this namespace, as each has
    mounts of its own; UNKNOWN for one without, and where these would be two users. root is root also where it has none.
    """
    if user == 0:
        return 0
    rows = _rows(UID_MAP)
    found = {inside + user - outside for inside, outside, count in rows if outside <= user < outside + count}
    found |= {user for inside, _, count in rows if inside <= user < inside + count}
    return found.pop() if len(found) == 1 else UNKNOWN


def _number_outside(number: int, file: Path) -> int:
    rows = _rows(file)
    found = (outside + number - inside for inside, outside, count in rows if inside <= number < inside + count)
    return next(found, UNKNOWN)


def _rows(file: Path) -> list[tuple[int, int, int]]:
    """Return (first number here, first number outside, count) of each range of a map."""
    rows = [line.split() for line in file.read_text().splitlines()]
    return [(int(inside), int(outside), int(count)) for inside, outside, count in rows]
