"""Contents of files of a squashfs image: blocks, tails in fragment blocks, holes.

A file's blocks are stored one after another, a block of zeros takes no room, the tail may share a fragment
block with others.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from envbuild.oci.tar import name_count
from envbuild.squashfs import format as sq
from envbuild.squashfs.read.decompress import CorruptDataError, Decompress
from envbuild.squashfs.read.metadata_stream import MetadataStream

RAW = 1 << 24  # of a size word: the block is stored as it is
LENGTH = RAW - 1
FRAGMENT = struct.Struct("<QII")  # of the table of fragment blocks: position, size word, unused
CACHED_BYTES = 16 << 20  # bytes of fragment blocks in memory
STEP = 4096  # bytes that a read costs at least
PRICES = {3: 20}  # of a byte that is unpacked: LZO is read in Python, at 10 MB/s
MAX_PLACES = 5_000_000  # of blocks, whose size words are in memory: 640 GB at the usual 128 KiB


class BlockReader:
    """A reader of stored blocks of one image. All methods raise `CorruptDataError`.

    `spent`: the work so far in bytes, read and unpacked; a short read counts as `STEP`.
    """

    def __init__(
        self, file: int, superblock: sq.Superblock, inflate: Decompress, fragments: MetadataStream | None
    ) -> None:
        self.file, self.size, self.codec = file, superblock.block, superblock.codec
        self.used, self.inflate = superblock.used, inflate
        self._fragments, self._fragment_count = fragments, superblock.fragments
        self._cached: dict[int, bytes] = {}
        self._checked = False  # the places of fragment blocks
        self._words: dict[int, int] = {}  # of the blocks of files, by their places
        self.spent = 0

    def count(self, size: int, fragment: int) -> int:
        """Return the number of size words of a file."""
        return -(-size // self.size) if fragment == sq.NO_FRAGMENT else size // self.size

    def length(self, at: int, word: int) -> int:
        """Return the stored bytes of a block, which is in the image."""
        length = word & LENGTH
        if length > self.size or word & ~(RAW | LENGTH):
            raise CorruptDataError("a block is longer than it may be")
        self.check_inside(at, length)
        return length

    def check_inside(self, at: int, length: int) -> None:
        if at + length > self.used:
            raise CorruptDataError("a block is outside of the image")

    def stored(self, at: int, length: int) -> bytes:
        """Return bytes as they are stored in the image."""
        self.check_inside(at, length)
        self.spent += max(length, STEP)
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
        if not self._checked:
            self._check_places(self._fragments)
        position, word, _ = FRAGMENT.unpack(self._fragments.read(FRAGMENT.size * number, FRAGMENT.size))
        return position, word

    def _check_places(self, table: MetadataStream) -> None:
        """Check that no two fragment blocks of different length begin at one place: the kernel finds a block that it
        has unpacked by its place alone (fs/squashfs/cache.c), as squashfuse and unsquashfs do."""
        if self._fragment_count > name_count.MAX_ENTRIES:
            raise CorruptDataError("there are too many fragment blocks")
        total, found = FRAGMENT.size * self._fragment_count, list[int]()
        for at in range(0, total, sq.PIECE):
            for position, word, _ in FRAGMENT.iter_unpack(table.read(at, min(sq.PIECE, total - at))):
                if position >= self.used or word & ~(RAW | LENGTH):
                    raise CorruptDataError("a fragment block is outside of the image")
                found.append(position << 25 | word)
        if any(one >> 25 == other >> 25 and one != other for one, other in pairwise(sorted(found))):
            raise CorruptDataError("two fragment blocks are at one place")
        self._checked = True

    def claim(self, start: int, words: Sequence[int]) -> None:
        """Check that no block at the places of a file's blocks has another size word in another file: squashfuse and
        unsquashfs find a block that they have unpacked by its place alone, and would show the other file's."""
        at, known = start, self._words
        for word in words:
            if word and known.setdefault(at, word) != word:
                raise CorruptDataError("two blocks of different length or form are at one place")
            at += word & LENGTH
        if len(known) > MAX_PLACES:
            raise CorruptDataError(f"it has more than {MAX_PLACES} blocks")

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
        data = self.stored(at, self.length(at, word))
        if word & RAW:
            return data
        self.spent += limit * PRICES.get(self.codec, 1)
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

    def claim(self) -> None:
        """Check the places of the blocks (`BlockReader.claim`), and that there is the fragment block, which the kernel
        reads also for a file without a tail."""
        self.reader.claim(self.start, self.words)
        if self.fragment != sq.NO_FRAGMENT:
            self.reader.place(self.fragment)

    def check(self) -> None:
        """Check where the blocks and the tail are, and the sizes of those that are stored as they are; they are not
        read."""
        self.claim()
        at, left, full = self.start, self.size, self.reader.size
        for word in self.words:
            if word:
                length = self.reader.length(at, word)
                if word & RAW and length != min(full, left):
                    raise CorruptDataError(f"a block has {length} bytes instead of {min(full, left)}")
                at += length
            left -= full
        if self.fragment != sq.NO_FRAGMENT:
            place, word = self.reader.place(self.fragment)
            length = self.reader.length(place, word)
            if self.offset + self.tail > (length if word & RAW else full):
                raise CorruptDataError("a tail is outside of its fragment block")

    def blocks(self) -> Iterator[bytes]:
        """Yield the content, block by block."""
        for size, data in self.pieces():
            if data is not None:
                yield data
            else:
                for at in range(0, size, self.reader.size):
                    yield bytes(min(self.reader.size, size - at))

    def pieces(self) -> Iterator[tuple[int, bytes | None]]:
        """Yield sizes with blocks; None for a hole, however long, of zeros that are not stored."""
        at, left, full, hole = self.start, self.size, self.reader.size, 0
        for word in self.words:
            size = full if left > full else left
            left -= size
            if not word:
                hole += size
                continue
            if hole:
                yield hole, None
                hole = 0
            yield size, self.reader.block(at, word, size)
            at += word & LENGTH
        if hole:
            yield hole, None
        if self.tail:
            yield self.tail, self.reader.tail(self.fragment, self.offset, self.tail)

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
