"""Writes of a file from front to back past the page cache (O_DIRECT, open(2)), where its file system can.

What is compressed is written once and is larger than what a machine should cache: through the page cache every byte is
copied into a page that had to be found for it, and evicts what other processes will read again. Direct writes take
whole pages from memory that begins at one; what comes is collected until there is enough, and the end of it, less than
a page, goes by the page cache when it is to be read.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence

from envbuild.core.file_status import on_disk
from envbuild.squashfs.pack.file import PAGE

Buffer = bytes | bytearray | memoryview
ROOM = 1 << 20  # bytes of one write
MAX_BUFFERS = 512  # buffers of one write; Linux takes 1024


class Appender:
    """A writer of the open `file`. Parts mostly follow each other; one that goes back writes over what was there."""

    def __init__(self, file: int) -> None:
        self.file, self.direct = file, open_direct(file)
        self.start = self.fill = 0  # the buffer holds `fill` bytes that belong at `start`, which begins a page
        self.buffer = memoryview(mmap.mmap(-1, ROOM)) if self.direct >= 0 else memoryview(b"")

    def write(self, parts: Sequence[Buffer], at: int) -> None:
        """Write `parts` one after another from position `at` on."""
        if self.direct < 0:
            write_all(self.file, parts, at)
            return
        if at != self.start + self.fill:
            self.flush()
            self._go(at)
        buffer, fill = self.buffer, self.fill
        for part in parts:
            done, size = 0, len(part)
            while size - done >= ROOM - fill:
                some = ROOM - fill
                buffer[fill:] = memoryview(part)[done : done + some]
                done += some
                self._write(ROOM)
                fill = 0
            buffer[fill : fill + size - done] = memoryview(part)[done:]
            fill += size - done
            self.fill = fill

    def read(self, at: int, length: int) -> bytes:
        """Return bytes that were written."""
        if at + length > self.start:
            self.flush()
        return os.pread(self.file, length, at)

    def flush(self) -> None:
        """Write what was collected, so that every reader of the file finds it."""
        whole = self.fill & -PAGE
        left = bytes(self.buffer[whole : self.fill])
        if whole:
            self._write(whole)
            self.buffer[: len(left)] = left
            self.fill = len(left)
        if left:
            write_all(self.file, [left], self.start)

    def close(self) -> None:
        """Close the file. Bytes that were not flushed are lost."""
        if self.direct >= 0:
            os.close(self.direct)
            self.direct = -1

    def _go(self, at: int) -> None:
        self.start = at & -PAGE
        self.fill = at - self.start
        before = os.pread(self.file, self.fill, self.start)
        self.buffer[: self.fill] = before.ljust(self.fill, b"\0")

    def _write(self, size: int) -> None:
        """Write the first `size` bytes of the buffer, whole pages."""
        write_pages(self.file, self.direct, self.buffer[:size], self.start)
        self.start, self.fill = self.start + size, 0


def open_direct(file: int) -> int:
    """Open the file of the descriptor `file` once more, for writes past the page cache; -1 where that cannot be."""
    if on_disk(file):
        with contextlib.suppress(OSError):  # not every file system can
            return os.open(f"/proc/self/fd/{file}", os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
    return -1


def write_pages(file: int, direct: int, pages: memoryview, at: int) -> None:
    """Write whole pages of memory to a position that begins a page: by `direct` (see `open_direct`), what that does not
    take by `file`."""
    done = 0
    with contextlib.suppress(OSError):  # the buffered write below raises the error of the disk
        done = os.pwrite(direct, pages, at) if direct >= 0 else 0
    if done < len(pages):
        write_all(file, [pages[done:]], at + done)


def write_all(file: int, parts: Sequence[Buffer], at: int) -> None:
    """Write `parts` one after another from position `at` on."""
    for first in range(0, len(parts), MAX_BUFFERS):
        some = parts[first : first + MAX_BUFFERS]
        size = sum(map(len, some))
        done = os.pwritev(file, some, at)
        if done < size:  # a full disk raises its error on the next call
            rest = memoryview(b"".join(some))[done:]
            while rest:
                count = os.pwrite(file, rest, at + size - len(rest))
                rest = rest[count:]
        at += size
