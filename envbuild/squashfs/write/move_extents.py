"""Moves of bytes of a file to earlier places in it, past the page cache (O_DIRECT, open(2)) where its file system can.

Direct moves take whole pages between places that are equal modulo a page, which is how long pieces are placed
(`envbuild.squashfs.write.extents`); the rest goes by the page cache. While one piece is written the next one is read:
it is behind what is written, because everything moves towards the beginning.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from concurrent.futures import ThreadPoolExecutor

from envbuild.core.file_status import on_disk
from envbuild.squashfs.pack.append_file import write_all
from envbuild.squashfs.pack.file import PAGE

ROOM = 1 << 21  # bytes that are read and written at once
LEAST = 1 << 18  # each direct write waits for the disk: shorter pieces go by the page cache


class Mover:
    """A mover of bytes of the open `file`. Used as a context manager."""

    def __init__(self, file: int) -> None:
        self.file, self.direct = file, -1
        self.stack = contextlib.ExitStack()
        if on_disk(file):
            with contextlib.suppress(OSError):
                self.direct = os.open(f"/proc/self/fd/{file}", os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
                self.stack.callback(os.close, self.direct)
        self.buffers = [memoryview(mmap.mmap(-1, ROOM)) for _ in range(2 if self.direct >= 0 else 0)]
        self.reader = self.stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="move"))

    def down(self, at: int, to: int, length: int) -> bool:
        """Move `length` bytes from `at` to the earlier position `to`; False when the file ends before. The two ranges
        may overlap."""
        first = -at % PAGE
        whole = (length - first) // PAGE * PAGE
        if at == to or self.direct < 0 or (at - to) % PAGE or whole < LEAST:
            return move_bytes(self.file, at, to, length)
        if not move_bytes(self.file, at, to, first):
            return False
        done = first + self._pages(at + first, to + first, whole)
        return move_bytes(self.file, at + done, to + done, length - done)

    def _pages(self, at: int, to: int, length: int) -> int:
        """Move whole pages; return how many bytes could be. The move of the rest raises the error."""
        done, turn = 0, 0
        coming = self.reader.submit(self._read, turn, at, length)
        while done < length:
            size, wanted = coming.result(), min(ROOM, length - done)
            if size < wanted:
                break
            if done + size < length:
                coming = self.reader.submit(self._read, 1 - turn, at + done + size, length - done - size)
            written = 0
            with contextlib.suppress(OSError):
                written = os.pwrite(self.direct, self.buffers[turn][:size], to + done)
            if written < size:
                coming.result()
                write_all(self.file, [self.buffers[turn][written:size]], to + done + written)
            done, turn = done + size, 1 - turn
        return done

    def _read(self, turn: int, at: int, length: int) -> int:
        """Fill a buffer, or as much of it as `length`; return the bytes that there were."""
        try:
            return os.preadv(self.direct, [self.buffers[turn][: min(ROOM, length)]], at)
        except OSError:
            return 0

    def __enter__(self) -> Mover:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()


def move_bytes(file: int, at: int, to: int, length: int) -> bool:
    """Move bytes by the page cache."""
    while length and at != to:
        chunk = os.pread(file, min(length, ROOM), at)
        if not chunk:
            return False
        write_all(file, [chunk], to)
        at, to, length = at + len(chunk), to + len(chunk), length - len(chunk)
    return True
