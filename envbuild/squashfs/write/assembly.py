"""An image's file as a list of extents: bytes of packs as they are, and the rest, which is stored as *tables*.

Another machine that has the same packs and the tables writes the same file without merging layers and without
compressing anything, so that the result does not depend on its codec library. The list may come from a stranger:
`check_extents` bounds the file by the bytes of its sources.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

from envbuild.core.regular_file import PinnedFile
from envbuild.squashfs.pack.file import PAGE
from envbuild.squashfs.write.copy_extents import PageCopier, copy_range
from envbuild.squashfs.write.digested_file import DigestedFile
from envbuild.squashfs.write.extents import Range

TABLES, ZEROS = -1, -2  # sources of an extent beside the numbers of packs
PIECE = 1 << 18

Extent = tuple[int, int, int]  # (number of a pack, TABLES or ZEROS; position in it; length)


@dataclass(frozen=True, slots=True)
class SourcePiece:
    """A part of a pack, or all of it: `length` bytes from `start` on of an open file.

    `arrived` waits until that file has more than its first bytes (a number), and returns how many it has; None where
    all of them are there."""

    file: PinnedFile
    start: int
    length: int
    arrived: Callable[[int], int] | None = None

    def slices(self, start: int, length: int) -> Iterator[tuple[int, int]]:
        """Yield (position, length) of `length` bytes of the file from `start` on, as they arrive. Raises
        TruncatedSourceError, and what `arrived` raises."""
        end = start + length
        while self.arrived and start < end:
            there = self.arrived(start)
            if there <= start:
                raise TruncatedSourceError("a pack is shorter than its size")
            pages = there - there % PAGE  # which file systems can share
            stop = end if there >= end else pages if pages > start else there
            yield start, stop - start
            start = stop
        if start < end:
            yield start, end - start


@dataclass(frozen=True, slots=True)
class Source:
    """The pieces of a pack, or of the tables, one after another, and where in it each `ends`."""

    pieces: Sequence[SourcePiece]
    ends: Sequence[int]

    @classmethod
    def of(cls, pieces: Sequence[SourcePiece]) -> Self:
        """Return pieces as a source."""
        return cls(pieces, list(accumulate(piece.length for piece in pieces)))

    def parts(self, at: int, length: int) -> Iterator[tuple[SourcePiece, int, int]]:
        """Yield (piece, position in its file, length) of `length` bytes from position `at` on.

        Raises TruncatedSourceError.
        """
        number = bisect_right(self.ends, at)
        while length:
            if number == len(self.pieces):
                raise TruncatedSourceError("a pack has fewer bytes than its size")
            piece, end = self.pieces[number], self.ends[number]
            some = min(length, end - at)
            yield piece, piece.start + piece.length - (end - at), some
            at, length, number = at + some, length - some, number + 1


class TruncatedSourceError(Exception):
    """A source has fewer bytes than its list of extents requires."""


def list_extents(file: int, size: int, ranges: Iterable[Range], packs: int) -> list[Extent]:
    """Return the extents of the finished image that is open as `file`, `size` bytes long.

    `ranges` were copied (`envbuild.squashfs.write.image_body.plan_ranges`); those of a pack with the number `packs` or
    more, which is not stored, belong to the tables. Raises TruncatedSourceError for ranges of a larger image.
    """
    extents: list[Extent] = []
    position = tables = 0

    def add_gap(end: int) -> None:
        nonlocal tables
        length = end - position
        if length < 0:
            raise TruncatedSourceError("the image is shorter than its extents")
        if 0 < length < PAGE and not any(os.pread(file, length, position)):  # in front of what begins a page
            extents.append((ZEROS, 0, length))
        elif length:
            extents.append((TABLES, tables, length))
            tables += length

    for number, at, length, to in sorted(ranges, key=lambda item: item[3]):
        if number < packs:
            add_gap(to)
            extents.append((number, at, length))
            position = to + length
    add_gap(size)
    return extents


def copy_tables(file: int, extents: Iterable[Extent], out: int) -> None:
    """Copy the parts of an image that belong to its tables into the open file `out`, one after another."""
    at = 0
    with PageCopier(out, direct=False) as pages:
        for source, to, length in extents:
            if source == TABLES and not copy_range(file, at, out, to, length, pages):
                raise TruncatedSourceError("the image is shorter than its extents")
            at += length


def check_extents(extents: Iterable[Extent], packs: Sequence[int], tables: int, size: int) -> None:
    """Raise ValueError unless `extents` take each byte of packs (their sizes) once at most, all of the tables, and make
    up a file of `size` bytes: so none is larger than what was downloaded for it."""
    ends, total, used = [0] * len(packs), 0, 0
    for source, at, length in extents:
        if length <= 0 or at < 0:
            raise ValueError("an extent has no length")
        if source == ZEROS:
            if length >= PAGE:
                raise ValueError("an extent of zeros is longer than a page")
        elif source == TABLES:
            if at != used:
                raise ValueError("the tables are not in their order")
            used += length
        elif not 0 <= source < len(packs) or at < ends[source] or at + length > packs[source]:
            raise ValueError("an extent is outside its pack")
        else:
            ends[source] = at + length
        total += length
    if (total, used) != (size, tables):
        raise ValueError("the extents do not make up the file")


def write_extents(
    out: int,
    extents: Iterable[Extent],
    open_source: Callable[[int], Source],
    size: int,
    progress: Callable[[int], object] = lambda size: None,
) -> str:
    """Write an image into the open, empty file `out`, and return its sha256. It is perhaps not yet on the disk.

    `open_source` returns a pack (its number), or the tables (TABLES), when its first byte is needed: it may wait until
    that has arrived. `progress` is called with bytes as they are written. Raises TruncatedSourceError, OSError, and
    what `open_source` raises.
    """
    os.ftruncate(out, size)
    sources = dict[int, Source]()
    with DigestedFile(out, progress=progress) as file:
        for source, at, length in extents:
            if source == ZEROS:
                file.write(bytes(length))
                continue
            if source not in sources:
                sources[source] = open_source(source)
            for piece, start, some in sources[source].parts(at, length):
                for begin, count in piece.slices(start, some):
                    if not file.copy(piece.file.fd, begin, count):
                        raise TruncatedSourceError("a pack is shorter than its size")
        return file.finish()


def extents_digest(
    extents: Iterable[Extent],
    packs: Sequence[Source],
    tables: Source,
    progress: Callable[[int], object] = lambda size: None,
) -> str:
    """Return the sha256 of the image that `write_extents` would write; `progress` is called with the bytes that were
    read. Raises TruncatedSourceError."""
    digest, buffer = hashlib.sha256(), memoryview(bytearray(PIECE))
    for source, at, length in extents:
        if source == ZEROS:
            digest.update(bytes(length))
            continue
        for piece, start, some in (tables if source == TABLES else packs[source]).parts(at, length):
            for chunk in read_piece(piece, start, some, buffer):
                digest.update(chunk)
            progress(some)
    return digest.hexdigest()


def read_piece(piece: SourcePiece, start: int, length: int, buffer: memoryview) -> Iterator[memoryview]:
    """Yield `length` bytes of the file of a piece, from `start` on; each chunk is valid until the next one.

    Raises TruncatedSourceError."""
    end = start + length
    while start < end:
        count = os.preadv(piece.file.fd, [buffer[: end - start]], start)
        if not count:
            raise TruncatedSourceError("a pack is shorter than its size")
        yield buffer[:count]
        start += count
