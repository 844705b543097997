"""Bombs: compressed content that unpacks to far more than real content does; the rule for layers, archives, commits."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from envbuild.core.text import amount

# Content that grows more than 200 times, to more than 1 GiB, is not real.
RATIO, SUSPECT = 200, 1 << 30
# Files of zeros (disk images, preallocated databases) are real. So a layer may have up to 4 GiB of them in addition:
# eight seconds of a processor (20 GiB of zeros took 38 s).
EMPTY = 4 << 30
BLOCK = 4096  # bytes that any member of an archive counts as


def most_unpacked(packed: int, ratio: int = RATIO) -> int:
    """Return the most bytes that content of `packed` bytes may unpack to."""
    return ratio * packed + SUSPECT


@dataclass(slots=True)
class UnpackedFiles:
    """The files that an archive of `packed` bytes unpacks to."""

    packed: int
    total: int = 0
    above: str = ""  # the folder of the member before

    def add(self, size: int, path: str = "") -> None:
        """Count a member of `size` bytes before it is written. Raises ValueError if real archives have fewer bytes.

        An empty member takes memory and a block of the disk, too: 30 kB of gzip may have 400,000 of them. So do the
        folders that only its path names: a member of 20 bytes may have 2,000."""
        self.total += size + BLOCK * (1 + self._new_folders(path.rpartition("/")[0]))
        if self.total > most_unpacked(self.packed):
            raise ValueError(f"{amount(self.packed)} unpack to more than {amount(most_unpacked(self.packed))}")

    def _new_folders(self, above: str) -> int:
        """Return how many folders `above` leads through that the path before did not: at least those that are new."""
        if above == self.above:
            return 0
        before, self.above = self.above, above
        names = above.split("/") if above else []
        alike = map(str.__eq__, names, before.split("/"))
        return len(names) - sum(takewhile(bool, alike))
