"""Archives whose digest was computed by a locking that failed, because something else was missing: the next one
within a day uses them, and downloads nothing twice.

Stored in ``partial/archives.json``, of this user alone: the next lock obeys it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from envbuild.core.store.store import Store, read_json, write_json
from envbuild.lock.model import SourceFile

DAY = 24 * 3600.0
FILE = "partial/archives.json"


def read_pending(store: Store) -> dict[str, SourceFile]:
    """Return file name → archive, of those that are recorded and in the store."""
    return {
        name: SourceFile(name, origin, sha256, size) for name, (origin, sha256, size, _) in _read_entries(store).items()
    }


def record_pending(store: Store, archives: Iterable[SourceFile]) -> None:
    """Record archives that are in the store."""
    with store.lock("archives"):
        new = {file.file: [file.origin, file.sha256, file.size, time.time()] for file in archives}
        if new:
            write_json(store.own / FILE, new | _read_entries(store))


def remove_pending(store: Store, names: Iterable[str]) -> None:
    """Remove archives that a lock names now."""
    if not (store.own / FILE).exists():
        return
    with store.lock("archives"):
        gone = frozenset(names)
        write_json(store.own / FILE, {name: entry for name, entry in _read_entries(store).items() if name not in gone})


def _read_entries(store: Store) -> dict[str, list[Any]]:
    """Return file name → [origin, sha256, size, when it was recorded]."""
    value = read_json(store.own / FILE)
    entries = value.items() if isinstance(value, dict) else ()
    return {name: entry for name, entry in entries if _is_entry(entry) and store.has_blob(entry[1])}


def _is_entry(entry: Any) -> bool:
    """Return whether a JSON value is an entry of the last day."""
    match entry:
        case [str(), str(), int(), int() | float() as recorded]:
            return time.time() - recorded < DAY
    return False
