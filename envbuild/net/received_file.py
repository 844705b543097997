"""The received part of a download, and the sha256 of it, which grows with each write: the file is not read again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from io import BufferedRandom

from envbuild.net.arrival import Arrival

DIGESTED = 1 << 20  # bytes of an earlier part that are read at a time


class ReceivedFile:
    """The open `file`, which no other process changes. `progress` is called with the bytes that are added (negative:
    discarded). `arrival`: for the thread that uses the first bytes meanwhile."""

    def __init__(self, file: BufferedRandom, progress: Callable[[int], object], arrival: Arrival | None = None) -> None:
        self.file, self.progress, self.arrival = file, progress, arrival
        self.size = file.seek(0, os.SEEK_END)
        if arrival:
            arrival.begin(file.fileno())
            arrival.grow(self.size)
        self.sha256, self.digested = hashlib.sha256(), 0  # of the bytes up to there
        progress(self.size)

    def write(self, chunk: bytes) -> None:
        """Append bytes. Raises OSError."""
        if self.digested < self.size:  # of an earlier attempt
            self.digest()
        self.file.write(chunk)
        self.sha256.update(chunk)
        self.size += len(chunk)
        self.digested = self.size
        self.progress(len(chunk))
        if self.arrival:
            self.file.flush()
            self.arrival.grow(self.size)

    def digest(self) -> str:
        """Return the sha256 (hex) of all that was received."""
        self.file.flush()
        self.file.seek(self.digested)
        while self.digested < self.size and (chunk := self.file.read(DIGESTED)):
            self.sha256.update(chunk)
            self.digested += len(chunk)
        self.file.seek(0, os.SEEK_END)
        return self.sha256.hexdigest()

    def head(self, size: int) -> bytes:
        """Return the first bytes."""
        self.file.flush()
        self.file.seek(0)
        found = self.file.read(size)
        self.file.seek(0, os.SEEK_END)
        return found

    def reset(self) -> None:
        """Discard all that was received."""
        self.progress(-self.size)
        if self.arrival:
            self.arrival.grow(0)
        self.file.flush()
        self.file.truncate(0)
        self.file.seek(0)
        self.size, self.sha256, self.digested = 0, hashlib.sha256(), 0
