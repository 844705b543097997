"""Streams that are read in chunks, of which slices are passed to a consumer without a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from envbuild.oci.tar.fields import LayerError

CHUNK = 1 << 20


class Readable(Protocol):
    """Stream that returns at most `size` bytes at a time, and none at its end: a file, an HTTP body, a socket."""

    def read(self, size: int, /) -> bytes: ...


class ChunkReader:
    """Reader of a stream. `chunk`, `view`: what was read last; `at`: its consumed bytes; `before`: bytes before it."""

    __slots__ = ("at", "before", "chunk", "stream", "view")

    def __init__(self, stream: Readable) -> None:
        self.stream = stream
        self.chunk, self.view, self.at, self.before = b"", memoryview(b""), 0, 0

    def read_more(self) -> bool:
        """Read the next chunk; return False at the end of the stream."""
        self.before += len(self.chunk)
        self.at = 0
        self.chunk = self.stream.read(CHUNK)
        self.view = memoryview(self.chunk)
        return bool(self.chunk)

    def read_up_to(self, size: int) -> bytes:
        """Return the next `size` bytes, or fewer at the end of the stream."""
        found = self.chunk[self.at : self.at + size]
        self.at += len(found)
        if len(found) == size:
            return found
        parts, left = [found], size - len(found)
        while left and self.read_more():
            self.at = min(left, len(self.chunk))
            parts.append(self.chunk[: self.at])
            left -= self.at
        return b"".join(parts)

    def read_exactly(self, size: int, what: str) -> bytes:
        """Return the next `size` bytes, which belong to `what`. Raises LayerError if there are fewer."""
        found = self.read_up_to(size)
        if len(found) < size:
            raise LayerError(f"it ends in the middle of {what}")
        return found

    def copy_to(self, size: int, write: Callable[[memoryview], object], what: str) -> None:
        """Pass the next `size` bytes, which belong to `what`, to `write`. Raises LayerError if there are fewer."""
        while size:
            used = min(len(self.chunk) - self.at, size)
            if used:
                write(self.view[self.at : self.at + used])
                self.at += used
                size -= used
            elif not self.read_more():
                raise LayerError(f"it ends in the middle of {what}")
