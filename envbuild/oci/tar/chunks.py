"""A stream that is read in pieces, of which slices are handed on without copying them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from envbuild.oci.tar.fields import LayerError

PIECE = 1 << 20


class Readable(Protocol):
    """What gives at most so many bytes at a time, and none at its end: a file, the body of an answer, a socket."""

    def read(self, size: int, /) -> bytes: ...


class Pieces:
    """The stream. `piece`, `view`: what is there of it; `at`: how far that is read; `before`: bytes in front of it."""

    __slots__ = ("at", "before", "piece", "stream", "view")

    def __init__(self, stream: Readable) -> None:
        self.stream = stream
        self.piece, self.view, self.at, self.before = b"", memoryview(b""), 0, 0

    def more(self) -> bool:
        """Go to the next piece; False at the end of the stream."""
        self.before += len(self.piece)
        self.at = 0
        self.piece = self.stream.read(PIECE)
        self.view = memoryview(self.piece)
        return bool(self.piece)

    def upto(self, size: int) -> bytes:
        """The next `size` bytes, or fewer at the end of the stream."""
        found = self.piece[self.at : self.at + size]
        self.at += len(found)
        if len(found) == size:
            return found
        parts, left = [found], size - len(found)
        while left and self.more():
            self.at = min(left, len(self.piece))
            parts.append(self.piece[: self.at])
            left -= self.at
        return b"".join(parts)

    def take(self, size: int, what: str) -> bytes:
        """The next `size` bytes, which belong to `what`. Raises LayerError when there are fewer."""
        found = self.upto(size)
        if len(found) < size:
            raise LayerError(f"it ends in the middle of {what}")
        return found

    def give(self, size: int, data: Callable[[memoryview], object], what: str) -> None:
        """Hand on the next `size` bytes. Raises LayerError when there are fewer."""
        while size:
            used = min(len(self.piece) - self.at, size)
            if used:
                data(self.view[self.at : self.at + used])
                self.at += used
                size -= used
            elif not self.more():
                raise LayerError(f"it ends in the middle of {what}")
