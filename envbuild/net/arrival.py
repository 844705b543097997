"""The first bytes of a download, for a thread that uses them while the others arrive."""

from __future__ import annotations

import os
import threading

from envbuild.core.regular_file import PinnedFile


class DiscardedError(Exception):
    """Bytes that were there are not part of the file: another place has other content, or a server began again."""


class Arrival:
    """One download. What has arrived is not compared with a digest yet: who reads it compares what was made of it."""

    def __init__(self) -> None:
        self.file: PinnedFile | None = None
        self.changed = threading.Condition()
        self.size = 0  # bytes that can be read
        self.discarded = self.ended = False

    def begin(self, file: int) -> None:
        """Take the descriptor of the file that is received."""
        # Opened again: a copy of the descriptor would hold the lock of a partial file after the download.
        opened = os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC)
        with self.changed:
            self.file = PinnedFile(opened)

    def grow(self, size: int) -> None:
        """Record that the file has `size` bytes; fewer than before were discarded."""
        with self.changed:
            self.discarded |= size < self.size
            self.size = size
            self.changed.notify_all()

    def end(self) -> None:
        """Record that nothing more comes: all is there, or the download failed."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def wait(self, start: int) -> int:
        """Wait until more than the first `start` bytes are there, or the download has ended; return how many are.

        Raises DiscardedError."""
        with self.changed:
            self.changed.wait_for(lambda: self.size > start or self.discarded or self.ended)
            if self.discarded:
                raise DiscardedError
            return self.size
