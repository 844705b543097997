"""Records of built images: a run without a change finds the record of the run before it, and ends.

A record is images/KEY.json, where KEY is a digest of all that decides the file's bytes. It has what was made, size and
time of the file, and what the store must retain for it while a link points at it (`envbuild.core.store.gc`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from envbuild.core.code_digest import code_digest
from envbuild.core.store.store import Store, read_json, stamp, write_json


def record_path(store: Store, decides: Iterable[str | bytes]) -> Path:
    """Return the path of the record of a file, named by all that `decides` its bytes and by envbuild's own code."""
    digest = hashlib.sha256()
    for part in (code_digest(), *decides):
        content = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(content)}\n".encode() + content)
    return store.root / "images" / f"{digest.hexdigest()}.json"


def read_record(path: Path) -> dict[str, Any] | None:
    """Return what was made, if its ``artifact`` exists unchanged; else None."""
    value = parse_record(read_json(path))
    if value is None:
        return None
    made: dict[str, Any] = value["made"]
    try:
        return made if value["stat"] == stamp(Path(made["artifact"])) else None
    except (OSError, ValueError):  # no file, or no path
        return None


def parse_record(value: Any) -> dict[str, Any] | None:
    """Return a JSON value that is a record; None if it is not one."""
    try:
        made, holds = value["made"], value["holds"]
        lists = (value["stat"], made["layers"], holds["units"], holds["blobs"])
        texts = (made["artifact"], *made["layers"], *holds["units"], *holds["blobs"])
    except (KeyError, TypeError):
        return None
    whole = all(isinstance(item, list) for item in lists) and all(isinstance(text, str) for text in texts)
    found: dict[str, Any] = value
    return found if whole else None


def write_record(path: Path, made: Mapping[str, Any], *, units: Iterable[str] = (), blobs: Iterable[str] = ()) -> None:
    """Record what was made.

    made: ``artifact`` is the file, ``layers`` the layers in it.
    units, blobs: keys and digests that the artifact requires in the store.
    """
    holds = {"units": sorted(units), "blobs": sorted(blobs)}
    write_json(path, {"made": dict(made), "stat": stamp(Path(made["artifact"])), "holds": holds})


def forget_damaged(path: Path | None) -> None:
    """Let no later run take the file of a record for unchanged, because something of it in the store is damaged.

    The record remains, because the next run uses the layers and inputs that it preserves in the store.
    """
    value = read_json(path) if path else None
    if path and isinstance(value, dict):
        write_json(path, {**value, "stat": []})
