"""The numbers of users in this process's user namespace (user_namespaces(7))."""

from __future__ import annotations

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


def number_here(user: int) -> int:
    """Return the number of a user of the machine, UNKNOWN for one without; root is root also where it has none."""
    if user == 0:
        return 0
    for line in UID_MAP.read_text().splitlines():
        inside, outside, count = map(int, line.split())
        if outside <= user < outside + count:
            return inside + user - outside
    return UNKNOWN
