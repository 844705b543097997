"""The plan of an image's data: which bytes of the packs are copied, and to which positions.

Live data is copied in the order of the packs, neighbours in one piece; what was deleted or replaced, or equals what an
earlier pack holds (`envbuild.squashfs.write.dedup`), is left out to the byte. A fragment block whose tails are all live
is copied too. One that also holds dead tails is packed again (`envbuild.squashfs.write.repack_fragments`), so that
nothing that a layer deleted remains in the published file.

A long piece is stored at a position that equals its position in the pack modulo 4096, so that a file system with
reflinks shares its blocks. That costs less than what was left out before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from envbuild.squashfs.pack.checksums import Checksums
from envbuild.squashfs.pack.file import PAGE, Pack
from envbuild.squashfs.pack.index import LENGTH, RAW
from envbuild.squashfs.write.dedup import find_equal_extents, find_equal_tails
from envbuild.squashfs.write.live_extents import LiveExtents, Slot, find_live_extents

SHARED_LENGTH = 1 << 16  # pieces from this length on are placed for sharing; of shorter ones too little could be shared

Range = tuple[int, int, int, int]  # (pack, position in it, length, position in the image)


@dataclass(slots=True)
class DataPlan:
    """The positions of all data of an image.

    `ranges` are copied; `starts` has per pack the position here of the blocks that start there; `fragments` are
    (position, size word) of the copied fragment blocks, `copied` their numbers by (pack, fragment). `new` are the
    fragment blocks to be packed again, each a list of (slot, length), which get the numbers after those and are stored
    from `copied_end` on; `moved` maps their slots to (number, offset). `same` maps a slot to an earlier pack's equal
    one. `checksums` are those of all that is copied, at its positions in the image.
    """

    ranges: list[Range] = field(default_factory=list)
    starts: list[dict[int, int]] = field(default_factory=list)
    fragments: list[tuple[int, int]] = field(default_factory=list)
    copied: list[dict[int, int]] = field(default_factory=list)
    new: list[list[tuple[Slot, int]]] = field(default_factory=list)
    moved: dict[Slot, tuple[int, int]] = field(default_factory=dict)
    same: Mapping[Slot, Slot] = field(default_factory=dict)
    copied_end: int = 0
    checksums: Checksums = field(default_factory=Checksums)

    def tail(self, pack: int, fragment: int, offset: int) -> tuple[int, int]:
        """Return (fragment block, offset) in the image of a tail of a pack."""
        number = self.copied[pack].get(fragment)
        if number is not None:
            return number, offset
        slot = self.same.get((pack, fragment, offset), (pack, fragment, offset))
        number = self.copied[slot[0]].get(slot[1])
        return (number, slot[2]) if number is not None else self.moved[slot]


def plan_data(packs: Sequence[Pack], live: Sequence[Collection[int]], start: int, jobs: int = 1) -> DataPlan:
    """Plan the data of an image whose live rows are `live` (per pack), from position `start` on; `jobs` threads
    compare what may be equal.
    """
    alive = [find_live_extents(pack, rows) for pack, rows in zip(packs, live, strict=True)]
    doubles = find_equal_extents(packs, alive, jobs)
    same = find_equal_tails(packs, alive, jobs)
    result = DataPlan(same=same)
    dirty: list[tuple[int, int]] = []
    position = start
    for number, (pack, lives) in enumerate(zip(packs, alive, strict=True)):
        columns = pack.index.columns
        stored, words = columns["stored"], columns["fragment_words"]
        crcs, fragment_crcs = columns["crcs"], columns["fragment_crcs"]
        places = {at: result.starts[other][there] for at, (other, there) in doubles.get(number, {}).items()}
        pieces = [(at, stored[row], ~row) for at, row in lives.extents.items() if at not in places]
        for fragment, slots in lives.slots.items():
            if fragment in lives.dirty:
                dirty.append((number, fragment))
            elif (number, fragment, next(iter(slots))) not in same:  # of a clean block all tails are given up, or none
                pieces.append((columns["fragment_starts"][fragment], words[fragment] & ~RAW, fragment))
        pieces.sort()
        copied: dict[int, int] = {}
        for first, after, length in join_neighbours(pieces):
            at = pieces[first][0]
            if length >= SHARED_LENGTH:
                position += (at - position) % PAGE
            for piece, size, fragment in pieces[first:after]:
                if fragment < 0:  # ~row of a file
                    places[piece] = position + piece - at
                    result.checksums.append(position + piece - at, size, crcs[~fragment])
                else:
                    result.checksums.append(position + piece - at, size, fragment_crcs[fragment])
                    copied[fragment] = len(result.fragments)
                    result.fragments.append((position + piece - at, words[fragment]))
            result.ranges.append((number, at, length, position))
            position += length
        result.starts.append(places)
        result.copied.append(copied)
    result.copied_end = position
    plan_new_fragments(packs, alive, sorted(dirty), result)
    return result


def plan_new_fragments(
    packs: Sequence[Pack], alive: Sequence[LiveExtents], dirty: Iterable[tuple[int, int]], plan: DataPlan
) -> None:
    """Enter the new blocks of `dirty` fragment blocks (pack, fragment) into `plan`: what goes where follows from
    lengths alone.
    """
    size = 0
    for number, fragment in dirty:
        block = packs[number].index.block
        slots = alive[number].slots[fragment]
        for offset in sorted(slots):
            slot, length = (number, fragment, offset), slots[offset] & LENGTH
            if slot in plan.same:
                continue
            if not plan.new or size + length > block:
                plan.new.append([])
                size = 0
            plan.moved[slot] = len(plan.fragments) + len(plan.new) - 1, size
            plan.new[-1].append((slot, length))
            size += length


def join_neighbours(pieces: Sequence[tuple[int, int, int]]) -> Iterable[tuple[int, int, int]]:
    """Yield runs of neighbours among sorted (position, length, …): (number of the first, number after the last,
    length)."""
    first, end = 0, -1
    for number, (at, length, _) in enumerate(pieces):
        if at != end:
            if number:
                yield first, number, end - pieces[first][0]
            first = number
        end = at + length
    if pieces:
        yield first, len(pieces), end - pieces[first][0]
