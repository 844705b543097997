"""The room that a disk has, by which a message about a full disk is judged: a server, an image or a package may have
written it."""

from __future__ import annotations

import os
import re
from pathlib import Path

FULL_BELOW = 64 << 20  # bytes left on a disk that is full for every purpose
PROBE = 1 << 20  # bytes for which a full disk has no room, with any cause that a program states
FEW_FILES = 100  # left on one that has no room for the files of a package


def is_full(found: re.Match[bytes], free: int) -> bool:
    """Return whether a message about a full disk is about the one that has `free` bytes: no file system in memory has a
    quota."""
    return free < FULL_BELOW or b"quota" in found[0]


def free_bytes(path: Path) -> int:
    """Return the bytes that the disk of a folder has left: none where it takes no more files."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize if has_room_for_files(path, FEW_FILES) else 0


def write_through(path: Path, size: int) -> None:
    """Write a file of `size` bytes to its disk, and remove it. Raises OSError, if that is full."""
    with path.open("wb") as file:
        try:
            for start in range(0, size, PROBE):
                file.write(bytes(min(PROBE, size - start)))
            file.flush()
            os.fsync(file)
        finally:
            path.unlink()


def has_room_for_files(path: Path, count: int) -> bool:
    """Return whether the disk of a folder takes `count` more files; some state no number (btrfs)."""
    status = os.statvfs(path)
    return not status.f_files or status.f_favail >= count
