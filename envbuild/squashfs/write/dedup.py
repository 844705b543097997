"""Deduplication across the packs of an image: equal data is stored once, where the lowest pack has it.

Checksums in the indexes name candidates, the bytes decide; so an image's content rests on no hash. Files are compared
as they are stored, once for two packs (`envbuild.squashfs.write.dedup_cache`), tails unpacked. A fragment block of
which only a part is found elsewhere is copied as it is: packing it again for every image would cost more than it saves.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache

from envbuild.squashfs.codec import crc32
from envbuild.squashfs.pack.file import Pack, damaged_pack
from envbuild.squashfs.pack.index import LENGTH, RAW
from envbuild.squashfs.write.dedup_cache import ComparisonCache
from envbuild.squashfs.write.live_extents import LiveExtents, Slot

PIECE = 1 << 18  # bytes compared at a time: two of them fit into a processor's cache
CACHED_BLOCKS = 32  # unpacked fragment blocks

Extent = tuple[int, int]  # (pack, start)
# (pack, fragment block, whether all of it is replaced, its tails: offset, the earlier one, length)
TailCandidates = tuple[int, int, bool, list[tuple[int, Slot, int]]]


class PackFiles:
    """The open files of packs."""

    def __init__(self, packs: Sequence[Pack]) -> None:
        self.packs = packs
        self.files: dict[object, int] = {}
        self.fragment = lru_cache(CACHED_BLOCKS)(self.read_fragment)

    def open(self, number: int) -> int:
        """Return the descriptor of a pack's file."""
        pack = self.packs[number]
        if pack.file:
            return pack.file.fd
        path = pack.path
        if path not in self.files:
            self.files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return self.files[path]

    def read(self, number: int, at: int, length: int) -> bytes:
        """Return bytes of a pack. Raises DamagedPackError when it is truncated."""
        pack = self.packs[number]
        data = os.pread(self.open(number), length, pack.base + at)
        if len(data) != length:
            raise damaged_pack(pack)
        return data

    def equal(self, one: Extent, other: Extent, length: int) -> bool:
        """Return whether two packs hold the same bytes there. Raises DamagedPackError when one is truncated."""
        buffers = bytearray(min(PIECE, length)), bytearray(min(PIECE, length))
        for done in range(0, length, PIECE):
            for buffer, (number, at) in zip(buffers, (one, other), strict=True):
                del buffer[length - done :]
                pack = self.packs[number]
                if os.preadv(self.open(number), [buffer], pack.base + at + done) != len(buffer):
                    raise damaged_pack(pack)
            if buffers[0] != buffers[1]:
                return False
        return True

    def check(self, number: int, at: int, length: int, crc: int) -> None:
        """Compare stored blocks with their checksum: what differs under one checksum is damaged, or an accident that
        happens once in four billion files. Raises DamagedPackError."""
        found = 0
        for done in range(0, length, PIECE):
            found = crc32(self.read(number, at + done, min(PIECE, length - done)), found)
        if found != crc:
            raise damaged_pack(self.packs[number])

    def read_fragment(self, number: int, fragment: int) -> bytes:
        """Return the content of a fragment block (`fragment` keeps the last ones). Raises DamagedPackError when it is
        damaged."""
        index = self.packs[number].index
        columns = index.columns
        word, size = columns["fragment_words"][fragment], columns["fragment_sizes"][fragment]
        stored = self.read(number, columns["fragment_starts"][fragment], word & ~RAW)
        if crc32(stored) != columns["fragment_crcs"][fragment]:
            raise damaged_pack(self.packs[number])
        content = stored if word & RAW else index.codec.decompress(stored, size)
        if len(content) != size:
            raise damaged_pack(self.packs[number])
        return content


@contextmanager
def open_packs(packs: Sequence[Pack]) -> Iterator[PackFiles]:
    """Open the packs' files; close them at the end."""
    result = PackFiles(packs)
    try:
        for number in range(len(packs)):  # before threads use it
            result.open(number)
        yield result
    finally:
        for file in result.files.values():
            os.close(file)


def find_equal_extents(
    packs: Sequence[Pack], alive: Sequence[LiveExtents], jobs: int
) -> Mapping[int, Mapping[int, Extent]]:
    """Return the stored blocks of files that an earlier pack also holds: pack → start → the earlier ones."""
    if len(packs) < 2:
        return {}
    seen: dict[tuple[int, int], tuple[int, int, int]] = {}
    candidates: list[tuple[Extent, Extent, int, int]] = []
    compared = ComparisonCache(packs)
    result: dict[int, dict[int, Extent]] = {}
    for number, (pack, live) in enumerate(zip(packs, alive, strict=True)):
        index = pack.index
        stored, crcs = index.columns["stored"], index.columns["crcs"]
        for at in sorted(live.extents):
            row = live.extents[at]
            other, there, first = seen.setdefault((stored[row], crcs[row]), (number, at, row))
            if other != number and packs[other].index.words(first) == index.words(row):
                if compared.equal(number, at, other, there):
                    result.setdefault(number, {})[at] = other, there
                else:
                    candidates.append(((number, at), (other, there), stored[row], crcs[row]))
    if not candidates:
        return result
    with open_packs(packs) as files, ThreadPoolExecutor(jobs) as pool:
        for (own, earlier, length, crc), same in zip(
            candidates, pool.map(lambda item: files.equal(*item[:3]), candidates), strict=True
        ):
            if same:
                result.setdefault(own[0], {})[own[1]] = earlier
                compared.add(*own, *earlier)
            else:
                files.check(*own, length, crc)
                files.check(*earlier, length, crc)
    compared.save()
    return result


def find_equal_tails(packs: Sequence[Pack], alive: Sequence[LiveExtents], jobs: int) -> Mapping[Slot, Slot]:
    """Return the tails that an earlier pack also holds → the earlier ones: all of a fragment block that is not needed
    then, and those of blocks that are packed again anyway.
    """
    if len(packs) < 2:
        return {}
    candidates = find_tail_candidates(alive)
    if not candidates:
        return {}
    with open_packs(packs) as files, ThreadPoolExecutor(jobs) as pool:
        pairs = pool.map(lambda candidate: compare_tails(files, candidate), candidates)
        return {own: other for found in pairs for own, other in found}


def find_tail_candidates(alive: Sequence[LiveExtents]) -> list[TailCandidates]:
    """Return the fragment blocks with tails whose checksum and length an earlier pack also has."""
    wanted = {key for live in alive[1:] for slots in live.slots.values() for key in slots.values()}
    seen: dict[int, Slot] = {}
    candidates: list[TailCandidates] = []
    for number, live in enumerate(alive):
        for fragment in sorted(live.slots):
            slots = live.slots[fragment]
            if wanted.isdisjoint(slots.values()):
                continue
            found = [(offset, seen[key], key & LENGTH) for offset, key in sorted(slots.items()) if key in seen]
            whole = fragment not in live.dirty
            if found and (not whole or len(found) == len(slots)):
                candidates.append((number, fragment, whole, found))
        if number < len(alive) - 1:
            add_tails(seen, number, live, wanted)
    return candidates


def add_tails(seen: dict[int, Slot], number: int, live: LiveExtents, wanted: Set[int]) -> None:
    """Add the tails of pack `number` that another pack may need, each at its first place."""
    for fragment in sorted(live.slots):
        for offset, key in live.slots[fragment].items():
            if key in wanted:
                seen.setdefault(key, (number, fragment, offset))


def compare_tails(files: PackFiles, candidate: TailCandidates) -> list[tuple[Slot, Slot]]:
    """Return the tails of a fragment block that are equal to the earlier ones; of one that is not needed if all of its
    tails are found elsewhere, all or none."""
    number, fragment, whole, found = candidate
    content = files.read_fragment(number, fragment)
    result: list[tuple[Slot, Slot]] = []
    for offset, slot, length in found:
        there = files.fragment(slot[0], slot[1])
        if content[offset : offset + length] == there[slot[2] : slot[2] + length]:
            result.append(((number, fragment, offset), slot))
        elif whole:
            return []
    return result
