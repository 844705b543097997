"""What was made, kept in the store: a second run with nothing changed finds the record of the first, and ends.

A record is images/KEY.json, where KEY is a digest of all that decides the file's bytes. It says what was made, how the
file looked then, and what the store must hold for it as long as a link points at it (`envbuild.core.store.gc`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from envbuild.core.code_digest import code_digest
from envbuild.core.store.store import Store, read_json, stamp, write_json


def record_path(store: Store, decides: Iterable[str | bytes]) -> Path:
    """Return where the record of a file is, named by all that `decides` its bytes and by envbuild's own code."""
    digest = hashlib.sha256()
    for part in (code_digest(), *decides):
        content = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(content)}\n".encode() + content)
    return store.root / "images" / f"{digest.hexdigest()}.json"


def read_record(path: Path) -> dict[str, Any] | None:
    """Return what was made, when its ``artifact`` is still there untouched."""
    try:
        value = read_json(path)
        made: dict[str, Any] = value["made"]
        return made if value["stat"] == stamp(Path(made["artifact"])) else None
    except (FileNotFoundError, KeyError, TypeError):  # no file, or no record
        return None


def write_record(path: Path, made: Mapping[str, Any], *, units: Iterable[str] = (), blobs: Iterable[str] = ()) -> None:
    """Keep what was made: its ``artifact`` is the file, its ``layers`` the layers in it; the keys of `units` and the
    digests of `blobs` are what else it holds in the store."""
    holds = {"units": sorted(units), "blobs": sorted(blobs)}
    write_json(path, {"made": dict(made), "stat": stamp(Path(made["artifact"])), "holds": holds})
