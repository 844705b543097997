"""Contents of files of a squashfs image: blocks, tails in fragment blocks, holes.

A file's blocks are stored one after another, a block of zeros takes no room, the tail may share a fragment
block with others. Two contents are compared without unpacking where the stored bytes are the same.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate

from envbuild.squashfs import format as sq
from envbuild.squashfs.read.decompress import CorruptDataError, Decompress
from envbuild.squashfs.read.metadata_stream import MetadataStream

RAW = 1 << 24  # of a size word: the block is stored as it is
LENGTH = RAW - 1
CACHED_BYTES = 16 << 20  # bytes of fragment blocks in memory
CHUNK = 1 << 17  # bytes compared at a time


class BlockReader:
    """A reader of stored blocks of one image. All methods raise `CorruptDataError`."""

    def __init__(
        self, file: int, superblock: sq.Superblock, inflate: Decompress, fragments: MetadataStream | None
    ) -> None:
        self.file, self.size, self.codec = file, superblock.block, superblock.codec
        self.used, self.inflate = superblock.used, inflate
        self._fragments, self._fragment_count = fragments, superblock.fragments
        self._cached: dict[int, bytes] = {}

    def count(self, size: int, fragment: int) -> int:
        """Return the number of size words of a file."""
        return -(-size // self.size) if fragment == sq.NO_FRAGMENT else size // self.size

    def stored(self, at: int, length: int) -> bytes:
        """Return bytes as they are stored in the image."""
        if at + length > self.used:
            raise CorruptDataError("a block is outside of the image")
        data = os.pread(self.file, length, at)
        if len(data) != length:
            raise CorruptDataError("the image is truncated")
        return data

    def block(self, at: int, word: int, size: int) -> bytes:
        """Return a block that must unpack to `size` bytes."""
        if not word:
            return bytes(size)
        data = self._unpacked(at, word, size)
        if len(data) != size:
            raise CorruptDataError(f"a block has {len(data)} bytes instead of {size}")
        return data

    def place(self, number: int) -> tuple[int, int]:
        """Return (position, size word) of a fragment block."""
        if self._fragments is None or number >= self._fragment_count:
            raise CorruptDataError("there is no such fragment block")
        position, word, _ = struct.unpack("<QII", self._fragments.read(16 * number, 16))
        return position, word

    def tail(self, number: int, offset: int, size: int) -> bytes:
        """Return `size` bytes at `offset` of a fragment block."""
        data = self._cached.get(number)
        if data is None:
            data = self._unpacked(*self.place(number), self.size)
            if len(self._cached) >= CACHED_BYTES // self.size:
                del self._cached[next(iter(self._cached))]
            self._cached[number] = data
        part = data[offset : offset + size]
        if len(part) != size:
            raise CorruptDataError("a tail is outside of its fragment block")
        return part

    def _unpacked(self, at: int, word: int, limit: int) -> bytes:
        length = word & LENGTH
        if length > self.size or word & ~(RAW | LENGTH):
            raise CorruptDataError("a block is longer than it may be")
        data = self.stored(at, length)
        if word & RAW:
            return data
        return self.inflate(data, limit)


class FileContent:
    """The content of one file. All methods raise `CorruptDataError`."""

    def __init__(
        self, blocks: BlockReader, size: int, start: int, fragment: int, offset: int, words: Sequence[int]
    ) -> None:
        self.reader, self.size, self.start, self.words = blocks, size, start, words
        self.fragment, self.offset = fragment, offset
        self.tail = size % blocks.size if fragment != sq.NO_FRAGMENT else 0
        self._places: array[int] | None = None

    def blocks(self) -> Iterator[bytes]:
        """Yield the content, block by block."""
        at, left, full = self.start, self.size, self.reader.size
        for word in self.words:
            size = min(left, full)
            yield self.reader.block(at, word, size)
            at, left = at + (word & LENGTH), left - size
        if self.tail:
            yield self.reader.tail(self.fragment, self.offset, self.tail)

    def at(self, position: int) -> bytes:
        """Return the bytes from `position` to the end of its block; nothing behind the end."""
        if position >= self.size:
            return b""
        number, offset = divmod(position, self.reader.size)
        if number >= len(self.words):
            return self.reader.tail(self.fragment, self.offset, self.tail)[offset:]
        if self._places is None:
            self._places = array("Q", accumulate((word & LENGTH for word in self.words), initial=self.start))
        size = min(self.size - number * self.reader.size, self.reader.size)
        return self.reader.block(self._places[number], self.words[number], size)[offset:]


class ContentComparison:
    """A comparison of contents of two images, which may be of any codec and block size. Raises `CorruptDataError`."""

    def __init__(self, before: BlockReader, after: BlockReader) -> None:
        self.before, self.after = before, after
        self.alike = (before.codec, before.size) == (after.codec, after.size)
        self._tails: dict[tuple[int, int], bool] = {}
        self.unpacked = 0  # bytes of one side that had to be unpacked

    def __call__(self, before: FileContent, after: FileContent) -> bool:
        """Return whether two files of one size hold the same bytes."""
        if not self.alike or len(before.words) != len(after.words):
            return self._streams(before, after)
        one, other = before.start, after.start
        left = before.size
        same = before.words == after.words and self._stored(one, other, sum(word & LENGTH for word in before.words))
        for word, word_after in () if same else zip(before.words, after.words, strict=True):
            size = min(left, self.before.size)
            if word != word_after or not self._stored(one, other, word & LENGTH):
                self.unpacked += size
                if self.before.block(one, word, size) != self.after.block(other, word_after, size):
                    return False
            one, other, left = one + (word & LENGTH), other + (word_after & LENGTH), left - size
        if not before.tail:
            return True
        if before.offset == after.offset and self._fragments(before.fragment, after.fragment):
            return True
        self.unpacked += before.tail
        tail = self.before.tail(before.fragment, before.offset, before.tail)
        return tail == self.after.tail(after.fragment, after.offset, after.tail)

    def _stored(self, one: int, other: int, length: int) -> bool:
        for at in range(0, length, CHUNK):
            size = min(CHUNK, length - at)
            if self.before.stored(one + at, size) != self.after.stored(other + at, size):
                return False
        return True

    def _fragments(self, one: int, other: int) -> bool:
        """Return whether two fragment blocks are stored alike; one pair serves many files."""
        found = self._tails.get((one, other))
        if found is None:
            (at, word), (at_after, word_after) = self.before.place(one), self.after.place(other)
            found = word == word_after and self._stored(at, at_after, min(word & LENGTH, self.before.size))
            self._tails[one, other] = found
        return found

    def _streams(self, before: FileContent, after: FileContent) -> bool:
        ones, others = before.blocks(), after.blocks()
        one = other = b""
        left = before.size
        while left:
            one, other = one or next(ones), other or next(others)
            size = min(len(one), len(other))
            self.unpacked += size
            if one[:size] != other[:size]:
                return False
            one, other, left = one[size:], other[size:], left - size
        return True
