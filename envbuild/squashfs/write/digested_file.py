"""A file that is written from front to back, once, while its sha256 is computed.

What is digested, what is compared with checksums and what is written are the same bytes in memory, so that the file
need not be read again. One thread reads, one digests, one writes past the page cache (O_DIRECT, open(2)): it takes as
long as the slowest of the three, in most cases the digest.

On a file system with shared blocks the data is shared, and what this file has then is read for the digest.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from envbuild.core.userns.file_calls import start_writing
from envbuild.squashfs.pack.append_file import Buffer, open_direct, write_all, write_pages
from envbuild.squashfs.pack.checksums import Checksums, Comparison
from envbuild.squashfs.pack.file import PAGE
from envbuild.squashfs.write.copy_extents import PageCopier, can_share, copy_range

ROOM = 1 << 21  # bytes that are digested and written at once
BUFFERS = 4  # one that is filled, one that is digested, one that is written, and one between them


class DigestedFile:
    """A writer of the open `file`. `checksums` of data at its positions in the file are compared. `progress` is called
    with bytes as they come. Used as a context manager."""

    def __init__(
        self,
        file: int,
        checksums: Checksums | None = None,
        progress: Callable[[int], object] = lambda size: None,
    ) -> None:
        self.file, self.progress = file, progress
        self.sharing: bool | None = None  # whether blocks are shared; the first copy tries it
        self.comparison = Comparison(checksums or Checksums())
        self.digest = hashlib.sha256()
        self.direct = open_direct(file)
        self.buffers = [memoryview(mmap.mmap(-1, ROOM)) for _ in range(BUFFERS)]  # they begin with a page
        self.busy: list[list[Future[None]]] = [[] for _ in range(BUFFERS)]
        self.number = self.fill = self.start = 0  # of the buffer that is filled; where it belongs in the file
        self.pages = PageCopier(file, direct=False)
        self.digester, self.writer = (ThreadPoolExecutor(1, thread_name_prefix=name) for name in ("digest", "write"))

    @property
    def position(self) -> int:
        """Return where the next byte goes."""
        return self.start + self.fill

    def write(self, data: Buffer) -> None:
        """Append bytes."""
        if self.sharing:
            write_all(self.file, [data], self.position)
        view, done = memoryview(data), 0
        while done < len(view):
            some = min(len(view) - done, ROOM - self.fill)
            self.buffers[self.number][self.fill : self.fill + some] = view[done : done + some]
            self._filled(some)
            done += some

    def copy(self, source: int, at: int, length: int) -> bool:
        """Append `length` bytes of a file from position `at` on; False when it ends before."""
        if self.sharing is None:
            self.sharing = can_share(source, self.file, self.position)
            if self.sharing:
                write_all(self.file, [self.buffers[self.number][: self.fill]], self.start)
        if self.sharing:
            if not copy_range(source, at, self.file, self.position, length, self.pages):
                return False
            source, at = self.file, self.position  # the owner of a source can change it, not what this file shares
        end = at + length
        while at < end:
            room = self.buffers[self.number][self.fill : self.fill + end - at]
            if not (count := os.preadv(source, [room], at)):
                return False
            self._filled(count)
            at += count
        return True

    def finish(self) -> str:
        """Write what is left; return the sha256 of the file. It is perhaps not yet on the disk."""
        self._send()
        for number in range(BUFFERS):
            self._wait(number)
        if self.sharing is not None:
            os.ftruncate(self.file, self.position)  # the page with which sharing was tried may be behind it
        return self.digest.hexdigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.digester.shutdown()
        self.writer.shutdown()
        if self.direct >= 0:
            os.close(self.direct)

    def _filled(self, count: int) -> None:
        self.fill += count
        self.progress(count)
        if self.fill == ROOM:
            self._send()

    def _send(self) -> None:
        """Let the other threads take the buffer, and go to the next one, once they are done with that."""
        full = self.buffers[self.number][: self.fill]
        jobs = [self.digester.submit(self._digest, full)]
        if not self.sharing:
            jobs.append(self.writer.submit(self._write, full, self.start))
        self.busy[self.number] = jobs
        self.number, self.start, self.fill = (self.number + 1) % BUFFERS, self.start + self.fill, 0
        self._wait(self.number)

    def _wait(self, number: int) -> None:
        for job in self.busy[number]:
            job.result()
        self.busy[number] = []

    def _digest(self, data: memoryview) -> None:
        self.digest.update(data)
        self.comparison.feed(data)

    def _write(self, data: memoryview, at: int) -> None:
        whole = len(data) & -PAGE
        write_pages(self.file, self.direct, data[:whole], at)
        if whole < len(data):
            write_all(self.file, [data[whole:]], at + whole)
        if self.direct < 0:
            start_writing(self.file, at, len(data))  # so that the last fsync finds little to do
