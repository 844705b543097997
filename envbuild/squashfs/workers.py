"""Threads that compress blocks, for all the layers that are packed at a time.

Every batch that was handed over and is not written yet takes memory for its content and for what is stored of it, so
what all layers may have handed over together is bounded: one layer alone may be far ahead, several share. Each may
always have two, so that a layer that waits for the network stops no other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

from envbuild.squashfs.allocation import keep_freed

T = TypeVar("T")

MOST_AHEAD = 12 << 20  # bytes of all layers: streams that are unpacked keep few cores busy, however many there are
LEAST_AHEAD = 2  # batches of each layer: one is compressed while the other is written


class Workers:
    """`jobs` threads (0: as many as this process may use). Used as a context manager it waits for them at its end."""

    def __init__(self, jobs: int = 0) -> None:
        keep_freed()  # before there are threads, or each has an arena of its own already
        self.jobs = jobs or len(os.sched_getaffinity(0))
        self.pool = ThreadPoolExecutor(self.jobs, thread_name_prefix="pack")
        self.layers, self.guard = 0, threading.Lock()  # layers that use them now

    def ahead(self, batch: int) -> int:
        """Batches of `batch` bytes that each of the layers may have handed over."""
        return max(min(self.jobs + 4, MOST_AHEAD // batch) // max(self.layers, 1), LEAST_AHEAD)

    def join(self) -> None:
        """One layer more uses these threads."""
        with self.guard:
            self.layers += 1

    def leave(self) -> None:
        """One layer less does."""
        with self.guard:
            self.layers -= 1

    def submit(self, work: Callable[..., T], *arguments: object) -> Future[T]:
        """Have `work` done with `arguments` by a thread."""
        return self.pool.submit(work, *arguments)

    def close(self) -> None:
        """Let the threads go; what nobody waits for any more is not begun."""
        self.pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
