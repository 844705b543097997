"""Blobs of a published image that are fetched in parallel, while another thread uses those that have arrived."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

PARALLEL = 8  # blobs that are fetched at a time


@dataclass(frozen=True, slots=True)
class BlobFetch:
    """A running fetch: `futures` by digest. `failed` ends with the first error of them."""

    futures: Mapping[str, Future[None]] = field(default_factory=dict)
    failed: Future[None] = field(default_factory=Future)

    def wait_for(self, digest: str) -> None:
        """Wait until a blob is there, if it is fetched at all. Raises the first error of any blob."""
        if future := self.futures.get(digest):
            wait([future, self.failed], return_when=FIRST_COMPLETED)
            self.check()

    def wait_for_all(self) -> None:
        """Wait until every blob is there. Raises the first error of any blob."""
        for digest in self.futures:
            self.wait_for(digest)

    def check(self) -> None:
        """Raise the error, if there was one."""
        if self.failed.done():
            self.failed.result()


@contextlib.contextmanager
def fetch_blobs(
    obtain: Callable[[str, int], None], sizes: Mapping[str, int], stop: threading.Event
) -> Iterator[BlobFetch]:
    """Call `obtain` with each digest and size, in their order, in threads of their own.

    `stop` is set to end all transfers: when one has failed, and when the context ends with an error.
    """
    guard, failed = threading.Lock(), Future[None]()

    def fetch(digest: str, size: int) -> None:
        try:
            obtain(digest, size)
        except BaseException as error:
            with guard:
                if not failed.done():  # others end because of it
                    failed.set_exception(error)
            stop.set()
            raise

    pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="pull")
    try:
        found = BlobFetch({digest: pool.submit(fetch, digest, size) for digest, size in sizes.items()}, failed)
        yield found
        found.wait_for_all()
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
        stop.clear()
