"""Removal of what no image needs.

An artifact is needed while the link NAME.sqsh points at it. Its record in images/ also requires its layers with their
packs, and the units and inputs of its plan. Everything else is removed after a week without a change, because the next
build may use it; `everything` ignores that week. Nothing is removed while another process works in the store.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envbuild.core.console import Reporter
from envbuild.core.engines import CACHES as ENGINE_CACHES
from envbuild.core.regular_file import mode_at
from envbuild.core.store.leases import FOLDER as LEASES
from envbuild.core.store.leases import LONGEST
from envbuild.core.store.records import file_names, parse_record
from envbuild.core.store.store import Store, read_json
from envbuild.core.store.usage import size_of

DAY = 24 * 3600.0
WEEK = 7 * DAY
# The names that commands give to what they leave in tmp/ and images/: other names are of no command, and remain.
LEFT = re.compile(r"(damaged|removed)-.+")
SCRATCH = re.compile(r"\.probe-[0-9a-f]{8}|tmp[a-z0-9_]{8}")  # the second: of tempfile
RECORD = re.compile(r"[0-9a-f]{64}\.json|\.[0-9a-f]{64}\.json\.[0-9a-f]{8}")


@dataclass(slots=True)
class RequiredEntries:
    """Entries that remaining artifacts require: names in units/, layers/, blobs/sha256/, images/ and artifacts/."""

    units: set[str] = field(default_factory=set)
    layers: set[str] = field(default_factory=set)
    blobs: set[str] = field(default_factory=set)
    images: set[str] = field(default_factory=set)
    artifacts: set[str] = field(default_factory=set)


def stem(name: str) -> str:
    """Return NAME-<lock digest>-<configuration> of a file of an artifact, without its ending."""
    # .sqsh, .oci, .evidence.json: an output format needs no row here
    return re.sub(r"(\.(evidence|provenance|cdx))?\.[a-z]+$", "", name)


def lock_stem(name: str) -> str:
    """Return NAME-<lock digest> of a file of an artifact."""
    return re.sub(r"(?<=-[0-9a-f]{12})-[0-9a-f]{8}$", "", stem(name))


def evidence_names(names: Iterable[str]) -> set[str]:
    """Return the names of the evidence of artifacts: it has the digest of the lock alone."""
    return {f"{lock_stem(name)}.evidence.json" for name in names}


def required_entries(store: Store, before: float) -> RequiredEntries:
    """Return the entries that must not be removed.

    before: seconds since 1970; later artifacts are required even without a link. Those that another file of the same
    lock replaced are required for a day: jobs that name them may wait in a queue. In a store that a group shares they
    may be the current ones of another member.
    """
    holds, day_ago = RequiredEntries(), 0.0 if store.is_shared else time.time() - DAY
    entries = list_folder(store.root / "artifacts")
    links = [path for path in entries if path.is_symlink() and mode_at(path) and not path.name.startswith(".")]
    targets = [path.readlink().name for path in links]
    linked, evidence = {stem(name) for name in targets}, evidence_names(targets)
    replaced = {lock_stem(path.readlink().name): change_time(path) for path in links}  # when the link was turned last
    holds.artifacts.update(path.name for path in links)
    for path in entries:
        belongs = stem(path.name) in linked or path.name in evidence
        # Replaced by an edit of a recipe or of a project folder: of these there may be many in a day.
        since = replaced.get(lock_stem(path.name), 0.0)
        recent = change_time(path) > before and (not since or max(since, change_time(path)) > day_ago)
        if not path.is_symlink() and (belongs or recent):
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
    """Return the records that match each artifact as it is now, else its newest record.

    The others describe an artifact that has been replaced since.
    """
    found: dict[str, list[tuple[Path, dict[str, Any]]]] = {}
    for path in sorted(list_folder(store.root / "images"), key=change_time, reverse=True):
        record = parse_record(read_json(path))
        if record is None:
            continue
        name = file_names(record)["artifact"]
        if name in artifacts and stat.S_ISREG(mode_at(store.root / "artifacts" / name)):
            found.setdefault(name, []).append((path, record))
    current = []
    for name, items in found.items():
        status = (store.root / "artifacts" / name).stat()
        now = [status.st_size, status.st_mtime_ns]
        current += [item for item in items if item[1]["stat"] == now] or items[:1]
    return current


def is_own_folder(path: Path) -> bool:
    """Return whether an entry is a folder, and not a link to one."""
    return not path.is_symlink() and stat.S_ISDIR(mode_at(path))


def list_folder(folder: Path) -> list[Path]:
    """Return the sorted entries of a folder; none if it does not exist. An entry that shows this user not even its type
    is left out: in a store that a group shares it can be the FUSE file system of another member."""
    return sorted(filter(_has_status, folder.iterdir())) if stat.S_ISDIR(mode_at(folder)) else []


def _has_status(path: Path) -> bool:
    try:
        path.lstat()
    except OSError:
        return False
    return True


def change_time(path: Path) -> float:
    """Return when an entry was last changed or renamed (ctime): blobs and layers have a fixed mtime."""
    return path.lstat().st_ctime


def last_change(folder: Path, depth: int = 2) -> float:
    """Return when anything in a cache folder, down to `depth`, was last changed, as far as this user can see."""
    times = [change_time(folder)]
    if depth and is_own_folder(folder):
        with contextlib.suppress(OSError):
            times += [last_change(path, depth - 1) for path in list_folder(folder)]
    return max(times)


def unneeded_entries(store: Store, *, everything: bool) -> Iterator[Path]:
    """Yield files and folders that nothing requires. The caller has the store alone."""
    before = time.time() - (0 if everything else WEEK)
    holds = required_entries(store, before)
    yield from unneeded_temporary_files(store, before)
    for path in list_folder(store.root / "artifacts"):
        if path.name not in holds.artifacts:
            yield path
    yield from unneeded_evidence(store, holds, before)
    images = [path for path in list_folder(store.root / "images") if RECORD.fullmatch(path.name)]
    yield from (path for path in images if path.name not in holds.images)
    content = list(unneeded_content(store, holds, before))
    yield from content
    gone = {path.name for path in content}
    for path in list_folder(store.root / "packs"):
        if path.name.split(".")[0].split("-")[0] not in holds.layers and change_time(path) <= before:
            yield path
    for path in list_folder(store.root / "control"):  # control data of the package with this digest
        if path.stem in gone or not store.has_blob(path.stem):
            yield path
    yield from old_files_and_caches(store, before)
    yield from old_leases(store)


def unneeded_evidence(store: Store, holds: RequiredEntries, before: float) -> Iterator[Path]:
    """Yield this user's evidence of artifacts that are not required, in a store that a group shares."""
    if store.own == store.root:
        return
    required, evidence = {stem(name) for name in holds.artifacts}, evidence_names(holds.artifacts)
    for path in list_folder(store.own / "artifacts"):
        if stem(path.name) not in required and path.name not in evidence and change_time(path) <= before:
            yield path


def old_leases(store: Store) -> Iterator[Path]:
    """Yield the leases of steps that ended without `envbuild.core.store.leases.release_step`."""
    folder, before = store.own / LEASES, time.time() - LONGEST
    yield from (path for path in list_folder(folder) if change_time(path) <= before)


def unneeded_temporary_files(store: Store, before: float) -> Iterator[Path]:
    """Yield what no process will complete or remove any more."""
    abandoned = set(store.abandoned())
    for path in list_folder(store.tmp):
        scratch = SCRATCH.fullmatch(path.name) and not stat.S_ISDIR(mode_at(path)) and change_time(path) <= before
        if LEFT.fullmatch(path.name) or scratch or path in abandoned:
            yield path


def unneeded_content(store: Store, holds: RequiredEntries, before: float) -> Iterator[Path]:
    """Yield the units, layers and blobs that no artifact requires, and that are not new."""
    places = [(store.root / "units", holds.units), (store.root / "blobs/sha256", holds.blobs)]
    places += [(store.own / "layers", holds.layers)]
    for folder, names in places:
        for path in list_folder(folder):
            if path.name not in names and change_time(path) <= before:
                yield path


def old_files_and_caches(store: Store, before: float) -> Iterator[Path]:
    """Yield the logs, partial downloads, results of locking and caches that were not changed since `before`."""
    for place in ("logs", "partial", "resolved"):
        yield from (path for path in list_folder(store.own / place) if change_time(path) <= before)
    for place in ("apt", *ENGINE_CACHES, "git", "uv", "ccache"):
        for path in list_folder(store.own / place):
            if os.path.lexists(path) and last_change(path) <= before:
                yield path


def collect(store: Store, reporter: Reporter, *, dry_run: bool, everything: bool) -> tuple[list[str], int]:
    """Remove what is not needed. Return the removed paths (below the store) and the bytes that they used.

    The caller has the store alone (`envbuild.core.store.use`).
    """
    removed: list[str] = []
    freed = 0
    found = list(unneeded_entries(store, everything=everything))
    outside = {folder for folder in {path.parent for path in found} if store.is_outside(folder)}
    for folder in sorted(outside):
        reporter.warn(
            f"{folder} leads out of the store, to {os.path.realpath(folder)}: nothing is removed there "
            "(to have a folder on another disk, mount it)"
        )
    for path in found:
        if path.parent in outside:
            continue
        try:
            size = size_of(path) if is_own_folder(path) else path.lstat().st_blocks * 512
            if not dry_run:
                remove_entry(path, store)
        except PermissionError:  # another user's, who removes it
            continue
        except OSError as error:
            reporter.warn(f"{path} is not removed: {error.strerror}")
            continue
        freed += size
        removed.append(str(path.relative_to(store.root)))
        reporter.note("gc", str(path))
    return removed, freed


def remove_entry(path: Path, store: Store) -> None:
    """Remove a file, a link or a folder of the store."""
    if is_own_folder(path):
        remove_folder(path, store)
    else:
        path.unlink(missing_ok=True)


def remove_folder(path: Path, store: Store) -> None:
    """Remove a folder, renamed first: a build must not find a layer that is half removed."""
    from envbuild.core.userns.removal import remove_tree

    if path.parent != store.tmp:
        # Its own name may be as long as a name can be.
        path = path.rename(store.tmp / f"removed-{secrets.token_hex(8)}")
    remove_tree(path)
