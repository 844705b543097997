"""Compression threads, and an allocator that keeps freed memory while layers are packed.

Pieces of 1 MiB and blocks of 128 KiB are taken and freed thousands of times. glibc returns them to the kernel when it
can, which provides every page again, filled with zeros: 130,000 times for an image of 1.2 GB. With mallopt(3) the
process keeps them; buffers that are larger than any piece are still returned at once, and `trim_heap` returns all
(malloc_trim(3)).
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from types import TracebackType
from typing import TypeVar

# malloc.h of glibc
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8
SETTINGS = {
    TRIM_THRESHOLD: 16 << 20,  # free bytes at the end of an arena that are not returned
    MMAP_THRESHOLD: 4 << 20,  # from here on a buffer has pages of its own, which go when it goes
    ARENA_MAX: 2,  # or every thread would keep what it used once; buffers are few and large: threads hardly wait
}


@cache
def keep_freed_memory() -> None:
    """Make malloc retain freed memory, from now on and for the whole process. Does nothing where the C library is not
    glibc, or refuses."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        for parameter, value in SETTINGS.items():
            mallopt(ctypes.c_int(parameter), ctypes.c_int(value))


def trim_heap() -> None:
    """Return to the kernel what malloc retained so far, once the layers are packed: merging them needs memory of its
    own."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


T = TypeVar("T")

MAX_AHEAD = 12 << 20  # bytes of all layers: streams that are unpacked keep few cores busy, however many there are
MIN_AHEAD = 2  # batches of each layer: one is compressed while the other is written


class Workers:
    """`jobs` threads (0: as many as this process may use). Used as a context manager it waits for them at its end."""

    def __init__(self, jobs: int = 0) -> None:
        keep_freed_memory()  # before there are threads, or each has an arena of its own already
        self.jobs = jobs or len(os.sched_getaffinity(0))
        self.pool = ThreadPoolExecutor(self.jobs, thread_name_prefix="pack")
        self.layers, self.guard = 0, threading.Lock()  # layers that use them now

    def ahead(self, batch: int) -> int:
        """Return the number of batches of `batch` bytes that each layer may have submitted."""
        return max(min(self.jobs + 4, MAX_AHEAD // batch) // max(self.layers, 1), MIN_AHEAD)

    def join(self) -> None:
        """Count one layer more that uses these threads."""
        with self.guard:
            self.layers += 1

    def leave(self) -> None:
        """Count one layer less."""
        with self.guard:
            self.layers -= 1

    def submit(self, work: Callable[..., T], *arguments: object) -> Future[T]:
        """Run `work` with `arguments` in a thread."""
        return self.pool.submit(work, *arguments)

    def close(self) -> None:
        """End the threads; work that no caller waits for any more is not started."""
        self.pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
