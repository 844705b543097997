"""The comparison of contents of two squashfs files, without unpacking where the stored bytes are the same.

Neither image is trusted. Files can share blocks, so a small image can hold very many bytes of them, and a size word of
zero is a block of zeros that takes no room at all: holes are skipped as ranges, and all work together has a limit.
"""

from __future__ import annotations

from envbuild.squashfs.read.content import LENGTH, BlockReader, FileContent
from envbuild.squashfs.read.decompress import CorruptDataError

CHUNK = 1 << 17  # bytes compared at a time
CACHED_PAIRS = 1 << 16  # pairs of fragment blocks, or of files, whose result is cached
# Bytes that a comparison reads and unpacks: so many, and so many times those of both images.
ALWAYS, RATIO = 4 << 30, 200


class CachedPairs(dict[tuple[int, int], bool]):
    """Results by pair; the oldest makes room for a new one."""

    def __setitem__(self, pair: tuple[int, int], value: bool) -> None:
        if len(self) >= CACHED_PAIRS:
            del self[next(iter(self))]
        super().__setitem__(pair, value)


class ContentComparison:
    """A comparison of contents of two images, which may be of any codec and block size. Raises `CorruptDataError`."""

    def __init__(self, before: BlockReader, after: BlockReader) -> None:
        self.before, self.after = before, after
        self.alike = (before.codec, before.size) == (after.codec, after.size)
        self.limit = before.spent + after.spent + ALWAYS + RATIO * (before.used + after.used)
        self._tails = CachedPairs()
        self.unpacked = 0  # bytes of one side that had to be unpacked

    @property
    def spent(self) -> int:
        """The work so far in bytes, read and unpacked."""
        return self.before.spent + self.after.spent

    def __call__(self, before: FileContent, after: FileContent) -> bool:
        """Return whether two files of one size hold the same bytes."""
        self.check()
        if not self.alike or len(before.words) != len(after.words):
            return self._pieces(before, after)
        one, other = before.start, after.start
        left = before.size
        same = before.words == after.words and self._stored(one, other, sum(word & LENGTH for word in before.words))
        for word, word_after in () if same else zip(before.words, after.words, strict=True):
            if word or word_after:
                size = min(left, self.before.size)
                if word != word_after or not self._stored(one, other, word & LENGTH):
                    self.check()
                    self.unpacked += size
                    if self.before.block(one, word, size) != self.after.block(other, word_after, size):
                        return False
                one, other = one + (word & LENGTH), other + (word_after & LENGTH)
            left -= self.before.size
        if not before.tail:
            return True
        if before.offset == after.offset and self._fragments(before.fragment, after.fragment):
            return True
        self.unpacked += before.tail
        tail = self.before.tail(before.fragment, before.offset, before.tail)
        return tail == self.after.tail(after.fragment, after.offset, after.tail)

    def check(self) -> None:
        """Raise CorruptDataError where the work is more than the limit."""
        if self.spent > self.limit:
            raise CorruptDataError(f"comparing the contents takes more than {self.limit} bytes, which is the limit")

    def _stored(self, one: int, other: int, length: int) -> bool:
        for at in range(0, length, CHUNK):
            self.check()
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

    def _pieces(self, before: FileContent, after: FileContent) -> bool:
        """Compare where blocks have other borders, or are compressed in another way."""
        ones, others = before.pieces(), after.pieces()
        left, here, there = before.size, 0, 0  # bytes not compared yet: of the file, of the piece of each side
        one = other = None
        at = at_after = 0
        while left:
            if not here:
                (here, one), at = next(ones), 0
            if not there:
                (there, other), at_after = next(others), 0
            self.check()
            size = min(here, there)
            if one is not None or other is not None:
                self.unpacked += size
                old = bytes(size) if one is None else one[at : at + size]
                if old != (bytes(size) if other is None else other[at_after : at_after + size]):
                    return False
            left, here, there, at, at_after = left - size, here - size, there - size, at + size, at_after + size
        return True
