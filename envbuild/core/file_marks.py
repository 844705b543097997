"""Marks of files that are read several times: a file that was exchanged or written meanwhile has another one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

FileMark = tuple[str, int, int, int, int]


def mark_files(paths: Iterable[Path]) -> list[FileMark]:
    """Return for each file its path and what changes when it is exchanged or written (inode(7)); zeros for a file that
    is missing."""
    found = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            found.append((str(path), 0, 0, 0, 0))
        else:
            found.append((str(path), status.st_ino, status.st_ctime_ns, status.st_mtime_ns, status.st_size))
    return found
