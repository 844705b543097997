"""Blobs of a published image that are fetched in parallel, while another thread uses what has arrived of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from envbuild.net.arrival import Arrival

PARALLEL = 8  # blobs that are fetched at a time


@dataclass(frozen=True, slots=True)
class BlobFetch:
    """A running fetch: `futures` and `arrivals` by digest. `failed` ends with the first error of them."""

    futures: Mapping[str, Future[None]] = field(default_factory=dict)
    failed: Future[None] = field(default_factory=Future)
    arrivals: Mapping[str, Arrival] = field(default_factory=dict)

    def begun(self, digest: str) -> Arrival | None:
        """Return a blob that is arriving, once its first bytes are there; None for a complete one, and for
        one that is not fetched. Raises the first error of any blob."""
        arrival = self.arrivals.get(digest)
        if not arrival:
            return None
        arrival.wait(0)
        self.check()
        return None if arrival.ended else arrival

    def arrived(self, arrival: Arrival, start: int) -> int:
        """Wait until more than the first `start` bytes of a blob are there; return how many are. Raises the first error
        of any blob, DiscardedError."""
        size = arrival.wait(start)
        self.check()
        return size

    def wait_for_all(self) -> None:
        """Wait until every blob is there. Raises the first error of any blob."""
        for future in self.futures.values():
            wait([future, self.failed], return_when=FIRST_COMPLETED)
            self.check()

    def check(self) -> None:
        """Raise the error, if there was one."""
        if self.failed.done():
            self.failed.result()


@contextlib.contextmanager
def fetch_blobs(
    obtain: Callable[[str, int, Arrival], None], sizes: Mapping[str, int], stop: threading.Event
) -> Iterator[BlobFetch]:
    """Call `obtain` with each digest, size and arrival, in their order, in threads of their own.

    `stop` is set to end all transfers: when one has failed, and when the context ends with an error.
    """
    guard, failed = threading.Lock(), Future[None]()
    arrivals = {digest: Arrival() for digest in sizes}

    def fetch(digest: str, size: int) -> None:
        try:
            obtain(digest, size, arrivals[digest])
        except BaseException as error:
            with guard:
                if not failed.done():  # others end because of it
                    failed.set_exception(error)
            stop.set()
            for arrival in arrivals.values():
                arrival.end()
            raise
        arrivals[digest].end()

    pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="pull")
    try:
        futures = {digest: pool.submit(fetch, digest, size) for digest, size in sizes.items()}
        found = BlobFetch(futures, failed, arrivals)
        yield found
        found.wait_for_all()
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
        stop.clear()
