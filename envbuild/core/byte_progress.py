"""Progress of a task in bytes, counted by several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

from envbuild.core.console import Reporter


def count_bytes(reporter: Reporter, task: str, total: int) -> Callable[[int], None]:
    """Return a function that adds bytes (negative: discarded ones) to those done of `total` of a task."""
    guard, done = threading.Lock(), 0

    def add(size: int) -> None:
        nonlocal done
        with guard:
            done += size
            reporter.advance(task, done, total)

    return add
