"""Compiled Python files whose source is not the one they were made from.

Header of a .pyc (PEP 552): 4 bytes magic, 4 bytes flags, then source time and size (32 bits each) or, with flag 1, a
hash of the source. Stale ones inside a read-only image are compiled again at every start.
"""

# Strings instead of Path objects: many thousand files, and names that are not UTF-8.
# ruff: noqa: PTH116, PTH123

from __future__ import annotations

import os
import posixpath
import struct
from collections.abc import Iterable


def check(paths: Iterable[str]) -> dict[str, object]:
    """Return counts and lists: ``{"hash": n, "timestamp": n, "orphan": n, "stale": [...], "damaged": [...]}``."""
    counts = {"hash": 0, "timestamp": 0, "orphan": 0}
    stale: list[str] = []
    damaged: list[str] = []
    for path in paths:
        try:
            with open(path, "rb") as file:
                _, flags, time, size = struct.unpack("<IIII", file.read(16))
        except (OSError, struct.error):
            damaged.append(path)
            continue
        if flags & 1:
            counts["hash"] += 1
            continue
        try:
            status = os.stat(source_path(path))
        except OSError:
            counts["orphan"] += 1  # Python does not read it (in __pycache__), or runs it without a source
            continue
        counts["timestamp"] += 1
        if (int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF) != (time, size):
            stale.append(path)
    return {**counts, "stale": stale, "damaged": damaged}


def source_path(path: str) -> str:
    """Return the .py of a .pyc (PEP 3147): ``a/__pycache__/b.cpython-313.opt-1.pyc`` → ``a/b.py``; ``a/b.pyc`` →
    ``a/b.py``."""
    folder, name = posixpath.split(path)
    if posixpath.basename(folder) == "__pycache__":
        return posixpath.join(posixpath.dirname(folder), name.split(".")[0] + ".py")
    return path[:-1]
