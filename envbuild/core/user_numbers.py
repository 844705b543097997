"""The numbers of users in this process's user namespace (user_namespaces(7))."""

from __future__ import annotations

import os
from pathlib import Path

UID_MAP = Path("/proc/self/uid_map")
UNMAPPED = 65534  # what the kernel shows for a user without a number here
UNKNOWN = -1  # no user has this number (chown(2))


def in_user_namespace() -> bool:
    """Return whether the users of this process are not those of the machine."""
    try:
        return UID_MAP.read_text().split() != ["0", "0", "4294967295"]
    except OSError:
        return False


def real_user() -> int:
    """Return the number that the user of this process has outside of its user namespace."""
    user = os.geteuid()
    return next(
        (outside + user - inside for inside, outside, count in _rows() if inside <= user < inside + count), user
    )


def number_here(user: int) -> int:
    """Return the number of a user of the machine, UNKNOWN for one without; root is root also where it has none."""
    if user == 0:
        return 0
    found = (inside + user - outside for inside, outside, count in _rows() if outside <= user < outside + count)
    return next(found, UNKNOWN)


def _rows() -> list[tuple[int, int, int]]:
    """Return (first number here, first number outside, count) of each range of the map."""
    rows = [line.split() for line in UID_MAP.read_text().splitlines()]
    return [(int(inside), int(outside), int(count)) for inside, outside, count in rows]
