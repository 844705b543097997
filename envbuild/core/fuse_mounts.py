"""File systems of users (FUSE): who mounted one answers for all owners and modes in it, also for those of root."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")  # proc_pid_mountinfo(5)


@functools.lru_cache(maxsize=256)
def fuse_user(device: int) -> int | None:
    """Return the user who mounted the FUSE file system with this device number; None for any other file system.

    The kernel states that user for each mount (``user_id=`` of mount.fuse3(8)); administrators mount theirs, such as
    glusterfs, as root."""
    try:
        lines = MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return None
    place = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        mount, _, kind = line.partition(" - ")
        if mount.split()[2:3] == [place] and kind.startswith("fuse"):
            found = re.search(r"\buser_id=([0-9]+)", kind.split()[-1])
            return int(found[1]) if found else 0
    return None
