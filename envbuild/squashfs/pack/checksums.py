"""Checksums of the data in a pack or an image, and their comparison with a file that is read once.

The data of a pack has CRC-32 checksums in the pack's index: one of the stored blocks of each file, one of each fragment
block. They find what a disk or a memory changed; against an attacker they are worth nothing, and only who can
write the store writes packs. isal's CRC-32 of pieces of 50 KB costs a tenth of the SHA-256 of the same bytes.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from envbuild.core.errors import DamagedPackError
from envbuild.squashfs.codec import crc32
from envbuild.squashfs.pack.file import DATA, Pack, damaged_pack, pack_head, read_pack
from envbuild.squashfs.pack.index import FILE, RAW

CHUNK = 1 << 18


@dataclass(slots=True)
class Checksums:
    """CRC-32 of extents of a file, in the order of their positions."""

    positions: array[int] = field(default_factory=lambda: array("Q"))
    lengths: array[int] = field(default_factory=lambda: array("Q"))
    crcs: array[int] = field(default_factory=lambda: array("I"))

    def append(self, position: int, length: int, crc: int) -> None:
        """Add an extent, which is behind all others."""
        self.positions.append(position)
        self.lengths.append(length)
        self.crcs.append(crc)


class Comparison:
    """A comparison of checksums with the bytes of a file, which is read from front to back."""

    def __init__(self, checksums: Checksums) -> None:
        self.checksums, self.wrong = checksums, 0
        self.number = self.at = self.crc = 0  # the extent that comes next, where the next chunk begins, its checksum

    def feed(self, chunk: memoryview) -> None:
        """Compare the next bytes of the file."""
        begin, end = self.at, self.at + len(chunk)
        positions, lengths, crcs = self.checksums.positions, self.checksums.lengths, self.checksums.crcs
        number, crc = self.number, self.crc
        while number < len(positions) and (start := positions[number]) < end:
            stop = start + lengths[number]
            crc = crc32(chunk[max(start - begin, 0) : stop - begin], crc)
            if stop > end:
                break
            self.wrong += crc != crcs[number]
            number, crc = number + 1, 0
        self.number, self.crc, self.at = number, crc, end

    def finish(self) -> int:
        """Return how many extents differ; what the file lacks differs, too."""
        return self.wrong + len(self.checksums.positions) - self.number


def read_chunks(file: int) -> Iterator[memoryview]:
    """Yield the bytes of an open file, from front to back; each chunk is valid until the next one."""
    buffer, at = memoryview(bytearray(CHUNK)), 0
    while count := os.preadv(file, [buffer], at):
        yield buffer[:count]
        at += count


def raise_difference(comparison: Comparison, path: Path) -> None:
    """Raise DamagedPackError if the data of an image, which was read to its end, does not match."""
    if wrong := comparison.finish():
        raise DamagedPackError(
            f"{wrong} of {len(comparison.checksums.positions)} pieces of the image's data do not match their checksums",
            hint="find the damaged packs: envbuild store check",
            where=str(path),
        )


def check_pack(path: Path) -> None:
    """Read all of a pack and compare every checksum. Raises DamagedPackError, or OSError."""
    pack = read_pack(path)
    assert pack.file is not None
    head = os.pread(pack.file.fd, DATA, 0)
    comparison = Comparison(pack_checksums(pack))
    for chunk in read_chunks(pack.file.fd):
        comparison.feed(chunk)
    if head != pack_head() or comparison.finish():
        raise damaged_pack(pack)


def pack_checksums(pack: Pack) -> Checksums:
    """Return the checksums of all data of a pack."""
    columns = pack.index.columns
    found = {
        start: (stored, crc)
        for kind, start, stored, crc in zip(
            pack.index.kinds, columns["starts"], columns["stored"], columns["crcs"], strict=True
        )
        if kind == FILE and stored
    }
    for start, word, crc in zip(
        columns["fragment_starts"], columns["fragment_words"], columns["fragment_crcs"], strict=True
    ):
        found[start] = word & ~RAW, crc
    result = Checksums()
    for start in sorted(found):
        result.append(start, *found[start])
    return result
