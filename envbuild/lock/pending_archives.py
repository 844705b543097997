"""Archives whose digest was computed by a locking that failed, because something else was missing: the next one
within a day uses them, and downloads nothing twice.

Stored in ``partial/archives.json``, of this user alone: the next lock obeys it, if its site has the same places for the
archive. The site decides where an archive without a stated digest comes from.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from typing import Any

from envbuild.core.store.store import Store, read_json, write_json
from envbuild.lock.model import SourceFile
from envbuild.lock.sources import candidate_places
from envbuild.net.site import Site

DAY = 24 * 3600.0
FILE = "partial/archives.json"


def read_pending(store: Store, site: Site) -> dict[str, SourceFile]:
    """Return file name → archive, of those that are recorded for the places of `site`, and in the store."""
    return {
        name: SourceFile(name, origin, sha256, size)
        for name, (origin, sha256, size, places, _) in _read_entries(store).items()
        if places == _places_digest(site, origin, name)
    }


def record_pending(store: Store, site: Site, archives: Iterable[SourceFile]) -> None:
    """Record archives that are in the store, and came from places of `site`."""
    with store.lock("archives"):
        new = {
            one.file: [one.origin, one.sha256, one.size, _places_digest(site, one.origin, one.file), time.time()]
            for one in archives
        }
        if new:
            known = _read_entries(store)
            other = {name: entry for name, entry in new.items() if known.get(name, entry)[:4] != entry[:4]}
            write_json(store.own / FILE, new | known | other)


def remove_pending(store: Store, names: Iterable[str]) -> None:
    """Remove archives that a lock names now."""
    if not (store.own / FILE).exists():
        return
    with store.lock("archives"):
        gone = frozenset(names)
        write_json(store.own / FILE, {name: entry for name, entry in _read_entries(store).items() if name not in gone})


def _read_entries(store: Store) -> dict[str, list[Any]]:
    """Return file name → [origin, sha256, size, digest of the places, when it was recorded]."""
    value = read_json(store.own / FILE)
    entries = value.items() if isinstance(value, dict) else ()
    return {name: entry for name, entry in entries if _is_entry(entry) and store.has_blob(entry[1])}


def _is_entry(entry: Any) -> bool:
    """Return whether a JSON value is an entry of the last day."""
    match entry:
        case [str(), str(), int(), str(), int() | float() as recorded]:
            return time.time() - recorded < DAY
    return False


def _places_digest(site: Site, origin: str, file: str) -> str:
    """Return a digest of the places of an archive, and of how they are read: their addresses may have passwords, and
    the network decides what a host has whose certificate is not checked."""
    network = site.network()
    parts = candidate_places(site, origin, file), sorted(network.insecure), network.certificates, network.proxy
    return hashlib.sha256(repr(parts).encode()).hexdigest()
