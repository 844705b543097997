"""File systems of users (FUSE): who mounted one answers for all owners and modes in it, also for those of root."""

from __future__ import annotations

import re
from pathlib import Path

from envbuild.core.user_numbers import UNKNOWN, number_here
from envbuild.core.userns import file_calls

MOUNTS = Path("/proc/self/mountinfo")  # proc_pid_mountinfo(5)


def mounter_of(file: int) -> int | None:
    """Return the user who mounted the FUSE file system of an open file; None for any other file system.

    The kernel states that user for each mount (``user_id=`` of mount.fuse3(8)); administrators mount theirs, such as
    glusterfs, as root. A mount that is not in the list was unmounted meanwhile, and may be any user's: a user's program
    can do that while it answers. So the type is that of the open file, and so is the number of its mount, which no
    other one gets until the file is closed.
    """
    try:
        if file_calls.file_system(file) != file_calls.FUSE:
            return None
    except OSError:  # an answer of the user's program, or of a server: the list decides
        pass
    try:
        number = Path(f"/proc/self/fdinfo/{file}").read_bytes().partition(b"mnt_id:")[2].split()[0]
        lines = MOUNTS.read_bytes().split(b"\n")
    except (OSError, IndexError):
        return UNKNOWN
    for line in lines:
        fields = line.split(b" ")
        if fields[0] == number and len(fields) >= 10 and b"-" in fields[6:]:
            return _stated_user(fields[fields.index(b"-", 6) + 1], fields[-1])
    return UNKNOWN


def _stated_user(kind: bytes, options: bytes) -> int | None:
    """Return the user of a mount by its type and its options. Of the texts in the list that users choose the kernel
    escapes blanks, tabs and line feeds alone."""
    if kind not in (b"fuse", b"fuseblk") and not kind.startswith(b"fuse."):  # virtiofs: the machine's
        return None
    found = re.search(rb"(?:^|,)user_id=([0-9]+)(?:,|$)", options)
    return number_here(int(found[1])) if found else UNKNOWN
