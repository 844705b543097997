"""What lies in the store, and what of it nobody needs.

An artifact is needed while the link NAME.sqsh points at it. With its record in images/ it holds its layers with their
packs, and the units and inputs that its plan names. Everything else may go once nothing changed it for a week, because
the next build may want it; `everything` drops the week. Nothing is removed while another process works in the store.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from envbuild.core.console import Reporter
from envbuild.core.errors import EngineError
from envbuild.core.store.store import Store, read_json

WEEK = 7 * 24 * 3600.0
KINDS = ("blobs", "layers", "packs", "artifacts", "logs", "control", "partial", "apt", "uv", "git", "buildah", "tmp")


def usage(store: Store) -> dict[str, int]:
    """Kind of content → bytes on disk. What a user namespace owns and hides from us is not counted."""
    return {kind: size_of(store.root / kind) for kind in KINDS}


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


@dataclass(slots=True)
class Held:
    """What artifacts that stay hold: names in units/, layers/, blobs/sha256/, images/ and artifacts/."""

    units: set[str] = field(default_factory=set)
    layers: set[str] = field(default_factory=set)
    blobs: set[str] = field(default_factory=set)
    images: set[str] = field(default_factory=set)
    artifacts: set[str] = field(default_factory=set)


def stem(name: str) -> str:
    """NAME-<lock digest> of the files of one artifact, which differ in their endings."""
    for ending in (".sqsh", ".oci", ".evidence.json"):
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name


def held(store: Store, before: float) -> Held:
    """What must stay. `before`: what changed later than this time (seconds since 1970) stays, linked or not."""
    holds = Held()
    entries = listed(store.root / "artifacts")
    links = [path for path in entries if path.is_symlink() and path.exists() and not path.name.startswith(".")]
    linked = {stem(path.readlink().name) for path in links}
    holds.artifacts.update(path.name for path in links)
    for path in entries:
        if not path.is_symlink() and (stem(path.name) in linked or changed(path) > before):
            holds.artifacts.add(path.name)
    for path, record in records(store, holds.artifacts):
        holds.images.add(path.name)
        holds.layers.update(layer.removeprefix("sha256:") for layer in record["made"]["layers"])
        holds.blobs.update(record["holds"]["blobs"])
        for key in record["holds"]["units"]:
            holds.units.add(f"{key}.json")
            if unit := store.unit(key):
                holds.blobs.update(sha256 for _, sha256 in unit.wheels)
                if unit.layer:
                    holds.layers.add(unit.layer.hex)
    return holds


def records(store: Store, artifacts: set[str]) -> list[tuple[Path, dict[str, Any]]]:
    """Of each artifact the records that tell of it as it lies there, or else the newest: the others tell of an artifact
    that was written over since."""
    found: dict[str, list[tuple[Path, dict[str, Any]]]] = {}
    for path in sorted(listed(store.root / "images"), key=changed, reverse=True):
        record: Any = read_json(path)
        try:
            name = Path(record["made"]["artifact"]).name
            _ = record["made"]["layers"], record["holds"]["blobs"], record["holds"]["units"], record["stat"]
        except (KeyError, TypeError):
            continue
        if name in artifacts and (store.root / "artifacts" / name).is_file():
            found.setdefault(name, []).append((path, record))
    kept = []
    for name, items in found.items():
        stat = (store.root / "artifacts" / name).stat()
        now = [stat.st_size, stat.st_mtime_ns]
        kept += [item for item in items if item[1]["stat"] == now] or items[:1]
    return kept


def listed(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def changed(path: Path) -> float:
    """When an entry was last changed or renamed: blobs and layers carry a fixed time of their content."""
    return path.lstat().st_ctime


def used(folder: Path, depth: int = 2) -> float:
    """When anything in a cache folder, down to `depth`, was last changed. What is hidden from this user is left out."""
    times = [changed(folder)]
    if depth and folder.is_dir() and not folder.is_symlink():
        with contextlib.suppress(OSError):
            times += [used(path, depth - 1) for path in listed(folder)]
    return max(times)


def unneeded(store: Store, *, everything: bool) -> Iterator[Path]:
    """Files and folders that nothing holds. The lock "gc" must be held."""
    before = time.time() - (0 if everything else WEEK)
    holds = held(store, before)
    abandoned = set(store.abandoned())
    for path in listed(store.root / "tmp"):
        left = path.name.startswith(("damaged-", "removed-")) or path in abandoned
        if left or (not path.is_dir() and changed(path) <= before):
            yield path
    for path in listed(store.root / "artifacts"):
        if path.name not in holds.artifacts and (path.is_symlink() or changed(path) <= before):
            yield path
    yield from (path for path in listed(store.root / "images") if path.name not in holds.images)
    gone = set()
    for place, names in (("units", holds.units), ("layers", holds.layers), ("blobs/sha256", holds.blobs)):
        for path in listed(store.root / place):
            if path.name not in names and changed(path) <= before:
                gone.add(path.name)
                yield path
    for path in listed(store.root / "packs"):
        if path.name.split(".")[0].split("-")[0] not in holds.layers and changed(path) <= before:
            yield path
    for path in listed(store.root / "control"):  # what the package with this digest says of itself
        if path.name in gone or not store.has_blob(path.name):
            yield path
    for place in ("logs", "partial"):
        yield from (path for path in listed(store.root / place) if changed(path) <= before)
    caches = [path for place in ("apt", "buildah", "git") for path in listed(store.root / place)] + [store.root / "uv"]
    yield from (path for path in caches if path.exists() and used(path) <= before)


def busy() -> NoReturn:
    raise EngineError("another envbuild works in this store", hint="run it again later: envbuild store gc")


def collect(store: Store, reporter: Reporter, *, dry_run: bool, everything: bool) -> tuple[list[str], int]:
    """Remove what is not needed; returns what (paths below the store) and how many bytes that frees. Raises EngineError
    at once when another process works in the store (it holds the lock "gc", shared)."""
    removed: list[str] = []
    freed = 0
    with store.lock("gc", busy):
        for path in list(unneeded(store, everything=everything)):
            folder = path.is_dir() and not path.is_symlink()
            freed += size_of(path) if folder else path.lstat().st_blocks * 512
            removed.append(str(path.relative_to(store.root)))
            if dry_run:
                continue
            if folder:
                remove_folder(path, store)
            else:
                path.unlink(missing_ok=True)
            reporter.note("gc", str(path))
    return removed, freed


def remove_folder(path: Path, store: Store) -> None:
    """Moved aside first: a layer that is half removed must not be found by a build."""
    from envbuild.core.userns.removal import remove_tree

    if path.parent != store.root / "tmp":
        path = path.rename(store.root / "tmp" / f"removed-{path.name}-{secrets.token_hex(4)}")
    remove_tree(path)
    shutil.rmtree(path, ignore_errors=True)
