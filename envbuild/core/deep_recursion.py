"""Room on Python's stack for functions that call themselves for each folder of a path."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

LEVELS = 2048  # folders in a path, at most: PATH_MAX is 4096 bytes (include/uapi/linux/limits.h)
CALLS = 4  # for each of them


@contextlib.contextmanager
def room_for_deep_paths() -> Iterator[None]:
    """Allow recursion along any path that Linux accepts."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + LEVELS * CALLS)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
