"""Answers of earlier comparisons: which stored blocks of one pack are those of another.

Packs do not change, so what was read and found equal once is not read again at the next merge of the same layers. The
answers of a pack lie beside it as ``<pack>.equal``: JSON, by name and digest of both packs, so that they are never
taken for another's. Without them everything is compared again, with the same result.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Sequence
from pathlib import Path

from envbuild.squashfs.pack.file import Pack

EqualStarts = dict[str, int]  # start of blocks (a number as text) → start of the other pack's


class ComparisonCache:
    """What is known of `packs`, bottom first. Packs that are not kept (`Pack.digest` is empty) are left out."""

    def __init__(self, packs: Sequence[Pack]) -> None:
        self.packs = packs
        self.answers: dict[int, dict[str, EqualStarts]] = {}  # of a pack: other pack → equal blocks
        self.fresh: set[int] = set()  # packs with answers that are not written yet

    def equal(self, number: int, at: int, other: int, there: int) -> bool:
        """Whether the blocks at `at` of pack `number` were found to be those at `there` of pack `other`."""
        return self._kept(number, other) and self._places(number, other).get(str(at)) == there

    def add(self, number: int, at: int, other: int, there: int) -> None:
        """They are."""
        if self._kept(number, other):
            self._places(number, other)[str(at)] = there
            self.fresh.add(number)

    def save(self) -> None:
        """Write what is new; a store that cannot be written goes without."""
        for number in self.fresh:
            path = self.packs[number].path
            folder = path.parent
            found = {key: places for key, places in self.answers[number].items() if (folder / file_name(key)).is_file()}
            text = json.dumps({"pack": identity(self.packs[number]), "equal": found}, sort_keys=True)
            temporary = folder / f"{path.name}.{secrets.token_hex(4)}"
            with contextlib.suppress(OSError):
                try:
                    temporary.write_text(text)
                    temporary.replace(cache_path(path))
                finally:
                    temporary.unlink(missing_ok=True)
        self.fresh.clear()

    def _kept(self, number: int, other: int) -> bool:
        one, two = self.packs[number], self.packs[other]
        return bool(one.digest and two.digest) and one.path.parent == two.path.parent

    def _places(self, number: int, other: int) -> EqualStarts:
        if number not in self.answers:
            self.answers[number] = read_cache(self.packs[number])
        return self.answers[number].setdefault(identity(self.packs[other]), {})


def read_cache(pack: Pack) -> dict[str, EqualStarts]:
    """The answers that lie beside a pack; none when they are another's or damaged."""
    try:
        value = json.loads(cache_path(pack.path).read_bytes())
        if value["pack"] == identity(pack):
            return {str(key): dict(places) for key, places in value["equal"].items()}
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        pass
    return {}


def cache_path(path: Path) -> Path:
    """Where the answers of a pack lie."""
    return path.with_name(f"{path.name}.equal")


def identity(pack: Pack) -> str:
    """What a pack is known by."""
    return f"{pack.digest.hex()} {pack.path.name}"


def file_name(key: str) -> str:
    """The file name in an identity."""
    return key.partition(" ")[2]
