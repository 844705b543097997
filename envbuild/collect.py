"""What lies in the store, and what of it nobody needs.

A made image holds its artifact, its layers with their packs, the units and the inputs that its plan names (the record
in images/ lists
them). Everything else may go once it is older than a week, so that a build that runs beside is not disturbed;
`everything` drops the week.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envbuild.console import Talk
from envbuild.store import Store, read_json

WEEK = 7 * 24 * 3600.0


def usage(store: Store) -> dict[str, int]:
    """Kind of content → bytes on disk. What a user namespace owns and hides from us is not counted."""
    return {
        kind: size_of(store.root / kind)
        for kind in ("blobs", "layers", "packs", "artifacts", "logs", "partial", "apt", "buildah", "tmp")
    }


def size_of(path: Path) -> int:
    """Bytes on disk below `path`; hard links count once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    todo = [path]
    while todo:
        folder = todo.pop()
        try:
            entries = list(folder.iterdir())
        except OSError:
            continue
        for entry in entries:
            stat = entry.lstat()
            if (stat.st_dev, stat.st_ino) not in seen:
                seen.add((stat.st_dev, stat.st_ino))
                total += stat.st_blocks * 512
            if entry.is_dir() and not entry.is_symlink():
                todo.append(entry)
    return total


def held(store: Store) -> dict[str, set[str]]:
    """What made images hold: names in units/, layers/, blobs/ and artifacts/. Records whose artifact is gone hold
    nothing."""
    holds: dict[str, set[str]] = {"units": set(), "layers": set(), "blobs": set(), "artifacts": set(), "images": set()}
    for path in (store.root / "images").glob("*.json"):
        record: Any = read_json(path)
        if record is None or not Path(record["made"]["artifact"]).is_file():
            continue
        holds["images"].add(path.name)
        holds["artifacts"].add(Path(record["made"]["artifact"]).name)
        holds["layers"].update(layer.removeprefix("sha256:") for layer in record["made"]["layers"])
        holds["blobs"].update(record["holds"]["blobs"])
        for key in record["holds"]["units"]:
            holds["units"].add(f"{key}.json")
            if unit := store.unit(key):
                holds["blobs"].update(sha256 for _, sha256 in unit.wheels)
                if unit.layer:
                    holds["layers"].add(unit.layer.hex)
    return holds


def unneeded(store: Store, *, everything: bool) -> Iterator[Path]:
    """Files and folders that no made image holds."""
    holds = held(store)
    # by the time of change, not of the content: blobs carry a fixed time
    newest = time.time() - (0 if everything else WEEK)
    places = {
        "units": "units",
        "layers": "layers",
        "blobs": "blobs/sha256",
        "images": "images",
        "logs": "logs",
        "partial": "partial",
    }
    for kind, place in places.items():
        folder = store.root / place
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name not in holds.get(kind, set()) and path.lstat().st_ctime <= newest:
                yield path
    for path in sorted((store.root / "packs").iterdir()):
        if path.name.split(".")[0].split("-")[0] not in holds["layers"] and path.lstat().st_ctime <= newest:
            yield path


def collect(store: Store, talk: Talk, *, dry_run: bool, everything: bool) -> tuple[list[str], int]:
    """Remove what is not needed; returns what (paths below the store) and how many bytes that frees."""
    from envbuild.engines.embedded import remove_tree

    removed: list[str] = []
    freed = 0
    with store.lock("gc"):
        for path in unneeded(store, everything=everything):
            freed += size_of(path) if path.is_dir() else path.lstat().st_blocks * 512
            removed.append(str(path.relative_to(store.root)))
            if dry_run:
                continue
            if path.is_dir():
                # moved aside first: a layer that is half removed must not be found by a build
                aside = store.root / "tmp" / f"removed-{path.name}"
                path.rename(aside)
                remove_tree(aside)
                shutil.rmtree(aside, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
            talk.note("gc", str(path))
    return removed, freed
