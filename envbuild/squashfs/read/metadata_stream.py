"""A table of squashfs metadata as one stream that can be read anywhere: pieces of 8192 bytes are unpacked when they are
needed, and only the latest are cached."""

from __future__ import annotations

import os
import struct
from array import array

from envbuild.squashfs import format as sq
from envbuild.squashfs.read.decompress import CorruptDataError, Decompress

CACHED_PIECES = 512  # pieces of one table in memory: 4 MiB


class MetadataStream:
    """A table whose pieces begin at `places`; the last place is where it ends. All methods raise `CorruptDataError`."""

    def __init__(self, file: int, places: array[int], inflate: Decompress) -> None:
        self.file, self.places, self.inflate = file, places, inflate
        self.room = max(len(places) - 1, 0) * sq.PIECE  # no more bytes than this
        self.numbers = {place - places[0]: number for number, place in enumerate(places[:-1])}
        self.cached: dict[int, bytes] = {}

    def position(self, piece: int, offset: int) -> int:
        """Return the position in the stream that a reference points to: `piece` is its place relative to the first,
        `offset` in it."""
        number = self.numbers.get(piece)
        if number is None or offset >= sq.PIECE:
            raise CorruptDataError("a reference points between two pieces")
        return number * sq.PIECE + offset

    def peek(self, at: int, count: int) -> bytes:
        """Return `count` bytes from `at`, fewer where the table ends."""
        number, offset = at >> 13, at & 0x1FFF
        piece = self.cached.get(number)
        if piece is None:
            piece = self._piece(number)
        data = piece[offset : offset + count]
        if len(data) == count:
            return data
        parts, left = [data], count - len(data)
        while left and len(piece) == sq.PIECE and number + 2 < len(self.places):
            number += 1
            piece = self._piece(number)
            parts.append(piece[:left])
            left -= len(parts[-1])
        return b"".join(parts)

    def read(self, at: int, count: int) -> bytes:
        """Return `count` bytes from `at`; no memory is taken for a count that cannot exist."""
        if count > self.room - at:
            raise CorruptDataError("a record is longer than its table")
        data = self.peek(at, count)
        if len(data) != count:
            raise CorruptDataError("a record is truncated")
        return data

    def _piece(self, number: int) -> bytes:
        piece = self.cached.get(number)
        if piece is not None:
            return piece
        if not 0 <= number < len(self.places) - 1:
            raise CorruptDataError("a reference points outside of its table")
        place, end = self.places[number], self.places[number + 1]
        stored = os.pread(self.file, end - place, place)
        if len(stored) != end - place:
            raise CorruptDataError("the file is truncated")
        (head,) = struct.unpack_from("<H", stored)
        if head & ~sq.STORED != len(stored) - 2:
            raise CorruptDataError("a piece has another length than the next one's place")
        piece = stored[2:] if head & sq.STORED else self.inflate(stored[2:], sq.PIECE)
        if len(piece) != sq.PIECE and number + 2 < len(self.places):
            raise CorruptDataError("a piece is shorter than it may be")
        if len(self.cached) >= CACHED_PIECES:
            del self.cached[next(iter(self.cached))]  # the oldest
        self.cached[number] = piece
        return piece
