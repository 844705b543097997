"""Compiled Python files whose source is not the one they were made from.

Header of a .pyc (PEP 552): 4 bytes magic, 4 bytes flags, then source time and size (32 bits each) or, with flag 1, a
hash of the source (64 bits). Stale ones inside a read-only image are compiled again at every start, or, without flag 2,
run in place of their source.
"""

# Strings instead of Path objects: many thousand files, and names that are not UTF-8.
# ruff: noqa: PTH113, PTH116, PTH123

from __future__ import annotations

import os
import posixpath
import struct
from collections.abc import Iterable
from importlib.util import MAGIC_NUMBER, source_hash


def check(paths: Iterable[str]) -> dict[str, object]:
    """Return counts and lists: ``{"hash": n, "timestamp": n, "orphan": n, "stale": [...], "damaged": [...]}``. Hashes
    of another Python than the one that runs this are not compared: each has its own key."""
    counts = {"hash": 0, "timestamp": 0, "orphan": 0}
    stale: list[str] = []
    damaged: list[str] = []
    for path in paths:
        try:
            with open(path, "rb") as file:
                header = file.read(16)
            magic, flags, time, size = struct.unpack("<4sIII", header)
        except (OSError, struct.error):
            damaged.append(path)
            continue
        if flags & 1:
            counts["hash"] += 1
            if magic == MAGIC_NUMBER and not has_hash(source_path(path), header[8:]):
                stale.append(path)
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


def has_hash(source: str, wanted: bytes) -> bool:
    """Return whether a source has a hash; also for one that is not a file: Python runs the .pyc alone or not at all."""
    if not os.path.isfile(source):
        return True
    try:
        with open(source, "rb") as file:
            return source_hash(file.read()) == wanted
    except OSError:
        return True


def source_path(path: str) -> str:
    """Return the .py of a .pyc (PEP 3147): ``a/__pycache__/b.cpython-313.opt-1.pyc`` → ``a/b.py``; ``a/b.pyc`` →
    ``a/b.py``."""
    folder, name = posixpath.split(path)
    if posixpath.basename(folder) == "__pycache__":
        return posixpath.join(posixpath.dirname(folder), name.split(".")[0] + ".py")
    return path[:-1]
