"""Caches of units that a site names: registries and folders with what other machines built."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

UNKNOWN = "?"  # in records: of which caches it was taken is not known, because the store no longer has its record


@dataclass(frozen=True, slots=True)
class UnitCache:
    """A cache: the layout `folder`, or the repository of a registry that `at` names. `at` is its name in messages and
    records.

    `write`: units that are built here are sent there. `keys`: files of public keys, by one of which a unit must be
    signed (none: it needs no signature). `sign`: the file of the private key that signs units which are sent there.
    """

    at: str
    folder: Path | None = None
    write: bool = False
    keys: tuple[Path, ...] = ()
    sign: Path | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names that records of its units may have: those that were signed have one for each key, so that they are
        not used after the site has removed the key. Raises SignatureError for a key that cannot be read."""
        return tuple(self.signed_name(key) for key in self.keys) or (self.at,)

    def signed_name(self, key: Path) -> str:
        """Return the name in records of units that a key signed. Raises SignatureError."""
        from envbuild.core.signing.public_keys import read_trusted

        return self.key_name(hashlib.sha256(read_trusted(key).strip()).hexdigest())

    def key_name(self, digest: str) -> str:
        """Return the name in records of units that a key signed; `digest` is that of `TrustedKey`."""
        return f"{self.at}#{digest[:16]}"


def names_without(names: Collection[str], caches: Iterable[UnitCache]) -> list[str]:
    """Return those of `names`, of records, that none of `caches` has: the site removed the cache, or the key, because
    such units are not to be used. What is not known is not one of them. Raises SignatureError for a key that cannot be
    read."""
    return sorted(set(names).difference((UNKNOWN,), *(cache.names for cache in caches))) if names else []


def names_without_keys(names: Collection[str], caches: Iterable[UnitCache]) -> list[str]:
    """Return those of `names`, of records, that no cache with keys has: every user who can write such a cache decides
    what its units contain; also what is not known. Raises SignatureError for a key that cannot be read."""
    unknown = [UNKNOWN] if UNKNOWN in names else []
    return names_without(names, (cache for cache in caches if cache.keys)) + unknown
