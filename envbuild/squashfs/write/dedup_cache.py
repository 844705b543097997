"""The cache of comparisons: which stored blocks of one pack are those of another.

Packs do not change, so what was read and found equal once is not read again at the next merge of the same layers. The
results of a pack are stored beside it as ``<pack>.equal``: JSON, by name and digest of both packs, so that they are
never used for another pack. Without them everything is compared again, with the same result.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

from envbuild.core.json_text import record_value
from envbuild.core.regular_file import read_bounded
from envbuild.core.store.json_files import write_atomic
from envbuild.squashfs.pack.file import Pack

MAX_CACHE = 64 << 20  # bytes
EqualStarts = dict[str, int]  # start of blocks (a number as text) → start of the other pack's


class ComparisonCache:
    """The known results for `packs`, bottom first. Packs that are not cached (`Pack.digest` is empty) are left out."""

    def __init__(self, packs: Sequence[Pack]) -> None:
        self.packs = packs
        self.results: dict[int, dict[str, EqualStarts]] = {}  # of a pack: other pack → equal blocks
        self.fresh: set[int] = set()  # packs with results that are not written yet

    def equal(self, number: int, at: int, other: int, there: int) -> bool:
        """Return whether the blocks at `at` of pack `number` were found to be those at `there` of pack `other`."""
        return self._is_cached(number, other) and self._places(number, other).get(str(at)) == there

    def add(self, number: int, at: int, other: int, there: int) -> None:
        """Record that they are equal."""
        if self._is_cached(number, other):
            self._places(number, other)[str(at)] = there
            self.fresh.add(number)

    def save(self) -> None:
        """Write new results; in a store that cannot be written none are cached."""
        for number in self.fresh:
            path = self.packs[number].path
            folder = path.parent
            found = {key: places for key, places in self.results[number].items() if (folder / file_name(key)).is_file()}
            text = json.dumps({"pack": identity(self.packs[number]), "equal": found}, sort_keys=True)
            with contextlib.suppress(OSError):
                write_atomic(cache_path(path), lambda file, text=text: file.write(text.encode()), durable=False)  # type: ignore[misc]
        self.fresh.clear()

    def _is_cached(self, number: int, other: int) -> bool:
        one, two = self.packs[number], self.packs[other]
        return bool(one.digest and two.digest) and one.path.parent == two.path.parent

    def _places(self, number: int, other: int) -> EqualStarts:
        if number not in self.results:
            self.results[number] = read_cache(self.packs[number])
        return self.results[number].setdefault(identity(self.packs[other]), {})


def read_cache(pack: Pack) -> dict[str, EqualStarts]:
    """Return the results that are stored beside a pack; none when they belong to another pack or are damaged."""
    try:
        value = record_value(read_bounded(cache_path(pack.path), MAX_CACHE, follow=False))
        if value["pack"] == identity(pack):
            return {key: {at: int(there) for at, there in places.items()} for key, places in value["equal"].items()}
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        pass
    return {}


def cache_path(path: Path) -> Path:
    """Return the path of the results of a pack."""
    return path.with_name(f"{path.name}.equal")


def identity(pack: Pack) -> str:
    """Return the identity of a pack."""
    return f"{pack.digest.hex()} {pack.path.name}"


def file_name(key: str) -> str:
    """Return the file name in an identity."""
    return key.partition(" ")[2]
