"""Live data of a pack: the stored blocks and the tails of the files that an image shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from envbuild.squashfs.pack.file import Pack
from envbuild.squashfs.pack.index import LENGTH

Slot = tuple[int, int, int]  # (pack, fragment block, offset)


@dataclass(slots=True)
class LiveExtents:
    """Live data of a pack. `extents`: start of stored blocks → a row that has them; `slots`: fragment block → offset →
    key of the tail there (see `envbuild.squashfs.pack.index`).
    """

    extents: dict[int, int]
    slots: dict[int, dict[int, int]]

    def is_dirty(self, pack: Pack, fragment: int) -> bool:
        """Return whether a fragment block also holds tails that are dead."""
        live = sum(self.slots[fragment].values()) & LENGTH  # lengths are the low half of keys
        return live != pack.index.columns["fragment_sizes"][fragment]


def find_live_extents(pack: Pack, rows: Iterable[int]) -> LiveExtents:
    """Return the data that the files `rows` of a pack need."""
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
    return LiveExtents(extents, slots)
