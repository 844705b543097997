"""Live data of a pack: the stored blocks and the tails of the files that an image shows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass

from envbuild.squashfs.pack.file import Pack
from envbuild.squashfs.pack.index import DIR, HARDLINK, LENGTH, PackIndex

Slot = tuple[int, int, int]  # (pack, fragment block, offset)


@dataclass(slots=True)
class LiveExtents:
    """Live data of a pack. `extents`: start of stored blocks → a row that has them; `slots`: fragment block → offset →
    key of the tail there (see `envbuild.squashfs.pack.index`). `dirty`: fragment blocks that also hold dead tails, or
    headers of dead members.
    """

    extents: dict[int, int]
    slots: dict[int, dict[int, int]]
    dirty: set[int]


def find_live_extents(pack: Pack, rows: Collection[int]) -> LiveExtents:
    """Return the data of the members `rows` of a pack: all live ones but directories and other names of files."""
    columns = pack.index.columns
    stored, tails = columns["stored"], columns["tails"]
    extents: dict[int, int] = {}
    slots: dict[int, dict[int, int]] = {}
    starts, fragments, offsets = columns["starts"], columns["fragments"], columns["offsets"]
    for row in rows:
        if stored[row]:
            extents.setdefault(starts[row], row)
        tail = tails[row]
        if tail:
            fragment = fragments[row]
            found = slots.get(fragment)
            if found is None:
                slots[fragment] = {offsets[row]: tail}
            else:
                found[offsets[row]] = tail
    dead = find_dead(pack.index, rows)
    return LiveExtents(extents, slots, find_dirty(pack.index, dead, slots) if dead else set())


def find_dead(index: PackIndex, rows: Collection[int]) -> list[int]:
    """Return the members of a pack that are not among `rows`, in their order."""
    kinds = index.kinds
    if len(rows) == len(kinds) - kinds.count(DIR) - kinds.count(HARDLINK):  # the layer is whole in nearly every image
        return []
    live = set(rows)
    return [row for row, kind in enumerate(kinds) if kind not in (DIR, HARDLINK) and row not in live]


def find_dirty(index: PackIndex, dead: list[int], slots: dict[int, dict[int, int]]) -> set[int]:
    """Return the fragment blocks with a tail of a `dead` member that no live one shares, or with its header."""
    columns = index.columns
    tails, fragments, offsets = columns["tails"], columns["fragments"], columns["offsets"]
    dirty = {fragments[row] for row in dead if tails[row] and offsets[row] not in slots.get(fragments[row], ())}
    for fragment, members in enumerate(columns["fragment_members"]):
        first, count = members >> 32, members & LENGTH
        if count:
            at = bisect_left(dead, first)
            if at < len(dead) and dead[at] < first + count:
                dirty.add(fragment)
    return dirty
