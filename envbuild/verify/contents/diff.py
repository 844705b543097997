"""`envbuild diff A B`: the differences of two images.

Each of A and B is a squashfs file, or the name of a spec: then its squashfs file, or its lock if the image is not
built. Files are compared only between two squashfs files. The compression of a file does not count as a difference.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from envbuild.core.result import Result
from envbuild.lock.model import Lock, lock_digest
from envbuild.spec.resolve import Resolution
from envbuild.spec.workspace import Workspace
from envbuild.squashfs.read.compare import TIME, Change, Comparison, pair_entries
from envbuild.squashfs.read.inode import KINDS, printable_path
from envbuild.squashfs.read.superblock import describe_superblock
from envbuild.squashfs.read.tree import SquashTree
from envbuild.verify.contents.diff_text import diff_report
from envbuild.verify.contents.metadata import ImageMetadata, locked_inputs, locked_packages, read_metadata
from envbuild.verify.contents.size_summary import SizeSummary, known_folder
from envbuild.verify.contents.squashfs_path import find_squashfs_file

FEW = 20  # paths that are listed without --files, if there are no more

Names = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two images.

    `file` is None for an image that is not built; `lock` is None for one that envbuild did not build. `debian` and
    `python` are the packages installed in the file. `resolution`: of an image that is not built.
    """

    name: str
    file: Path | None
    lock: Lock | None
    metadata: ImageMetadata | None = None
    debian: dict[str, str] = field(default_factory=dict)
    python: dict[str, str] = field(default_factory=dict)
    resolution: Resolution | None = None


@dataclass(slots=True)
class FileDiff:
    """The differences of files.

    `changed_folders`: folder → kind of change (added, removed, changed) → number of paths.
    """

    before: SizeSummary = field(default_factory=SizeSummary)
    after: SizeSummary = field(default_factory=SizeSummary)
    entries: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    fields: Counter[str] = field(default_factory=Counter)
    changed_folders: dict[bytes, Counter[str]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)


def diff_images(before: str, after: str, workspace: Workspace, *, files: bool = False) -> Result:
    """Return the changes from `before` to `after`; ``data["equal"]`` is whether there are none: of a squashfs file
    and a lock this is not known.

    `files`: list every path.

    Raises the errors of loading a spec, LockError for one that has no lock, VerifyError for damaged files.
    """
    names = [find_side(name, workspace) for name in (before, after)]
    one, other = names
    if one.file and other.file:
        with SquashTree(one.file) as old, SquashTree(other.file) as new:
            diff = compare_files(old, new, everything=files)
            sides = [read_side(one, old, diff.before), read_side(other, new, diff.after)]
    else:
        diff, sides = None, [read_side_alone(name) for name in names]
    data: dict[str, Any] = {
        "before": describe_side(sides[0]),
        "after": describe_side(sides[1]),
        **compare_sections(*sides),
    }
    data["files"] = count_changes(diff) if diff else None
    data["folders"] = folder_changes(diff) if diff else {}
    if diff and (files or len(diff.changes) == sum(diff.counts.values())):
        data["paths"] = [change_row(change) for change in diff.changes]
    changed = any(data[key] for key in SECTIONS) or bool(diff and diff.counts)
    data["equal"] = not changed and bool(one.file) == bool(other.file)
    return Result(data, diff_report(data, everything=files))


def find_side(name: str, workspace: Workspace) -> Side:
    """Return the image that an argument of the command line names."""
    from envbuild.export.built_image import read_image_record
    from envbuild.lock.resolve import resolve_image
    from envbuild.lock.update import current_lock

    file = find_squashfs_file(name)
    if file:
        return Side(name, file, None)
    resolution = resolve_image(name, workspace)
    if made := read_image_record(resolution, workspace):
        return Side(name, Path(made.artifact), None)
    return Side(name, None, current_lock(resolution, workspace), resolution=resolution)


def read_side(side: Side, tree: SquashTree, holdings: SizeSummary) -> Side:
    """Return a side with the content of its squashfs file."""
    metadata = read_metadata(tree)
    return Side(side.name, side.file, metadata.lock, metadata, metadata.debian, holdings.python)


def read_side_alone(side: Side) -> Side:
    """Return a side that is not compared file by file, because the other one is not built."""
    if not side.file:
        return side
    with SquashTree(side.file) as tree:
        return read_side(side, tree, SizeSummary(str(side.file)).add_all(tree.walk()))


# metadata of the images
SECTIONS = ("base", "components", "debian", "python", "sources", "inputs", "env", "start")


def compare_sections(one: Side, other: Side) -> dict[str, dict[str, Any]]:
    """Return the differences by section. Packages come from the two locks, or from the installed ones if a side has no
    lock. `inputs`: what else two locks have differently, if an image is known by its lock alone."""
    result: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    result["components"] = diff_names(versions(one), versions(other))
    if one.lock and other.lock:
        old, new = locked_packages(one.lock), locked_packages(other.lock)
        result["base"] = diff_names(base(one.lock), base(other.lock))
        result["sources"] = diff_names(old["source"], new["source"])
    else:
        old, new = installed(one), installed(other)
    for name in ("debian", "python"):
        result[name] = diff_names(old[name], new[name])
    if one.lock and other.lock and not (one.metadata and other.metadata):
        result["inputs"] = compare_inputs(one.lock, other.lock, result)
        if one.resolution and other.resolution and not any(result.values()):
            result["inputs"] = diff_names(
                planned_units(one.resolution, one.lock), planned_units(other.resolution, other.lock)
            )
    if one.metadata and other.metadata:
        result["env"] = diff_names(one.metadata.env, other.metadata.env)
        result["start"] = diff_names(start(one.metadata), start(other.metadata))
    return result


def compare_inputs(old: Lock, new: Lock, reported: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the inputs that differ beside those that are `reported` by version: other content of the same version,
    and what only builds use; the whole lock if it differs in anything else that decides an image."""
    sections = {"debian": "debian", "python": "python", "source": "sources"}
    known = {(kind, name) for kind, key in sections.items() for names in reported[key].values() for name in names}
    before, after = (
        {f"{kind} {name}": text for (kind, name), text in locked_inputs(lock).items() if (kind, name) not in known}
        for lock in (old, new)
    )
    found = diff_names(before, after)
    if found or any(reported.values()):
        return found
    digests = (lock_digest(replace(lock, image="", inputs="", waivers=(), chosen={}, facts=())) for lock in (old, new))
    return diff_names(*({"lock": digest} for digest in digests))


def planned_units(resolution: Resolution, lock: Lock) -> Names:
    """Return the keys of the units of an image that is not built, which have all that decides their content, and the
    digest of its configuration: commands, scripts and variables are in no lock."""
    from envbuild.build.plan.planner import make_plan

    plan = make_plan(resolution, lock)
    config = repr(replace(plan.config, labels={}))
    return {**plan.keys(), "configuration": f"sha256:{hashlib.sha256(config.encode()).hexdigest()}"}


def diff_names(before: Names, after: Names) -> dict[str, Any]:
    """Return added and removed (name → value), changed (name → [before, after]); {} when they are equal."""
    parts: dict[str, Any] = {
        "added": {name: after[name] for name in sorted(after.keys() - before.keys())},
        "removed": {name: before[name] for name in sorted(before.keys() - after.keys())},
        "changed": {
            name: [before[name], after[name]]
            for name in sorted(before.keys() & after.keys())
            if before[name] != after[name]
        },
    }
    return parts if any(parts.values()) else {}


def versions(side: Side) -> Names:
    """Return component → version."""
    if side.metadata and side.metadata.versions:
        return side.metadata.versions
    return side.lock.versions if side.lock else {}


def installed(side: Side) -> dict[str, dict[str, str]]:
    """Return the installed packages, or those of the lock if there is no file of the image."""
    if side.lock and not side.file:
        return locked_packages(side.lock)
    return {"debian": side.debian, "python": side.python}


def base(lock: Lock) -> Names:
    return {"base": f"{lock.base} ({lock.base_image.digest[:12]})" if lock.base_image else lock.base}


def start(metadata: ImageMetadata) -> Names:
    """Return the start command and folder; {} for an image without /etc/rc."""
    return {"command": metadata.command, "workdir": metadata.workdir} if metadata.has_start_script else {}


def describe_side(side: Side) -> dict[str, Any]:
    """Return the description of an image."""
    image = side.metadata.origin.get("image", "") if side.metadata else side.lock.image if side.lock else ""
    return {
        "name": side.name,
        "file": str(side.file or ""),
        "image": str(image),
        "squashfs": describe_superblock(side.file) if side.file else None,
    }


# files
def compare_files(old: SquashTree, new: SquashTree, *, everything: bool) -> FileDiff:
    """Compare two trees; collect all changes with `everything`, else the first few."""
    diff = FileDiff(SizeSummary(str(old.path)), SizeSummary(str(new.path)))
    comparison = Comparison(old, new)
    for before, after in pair_entries(old, new):
        diff.entries += 1
        if before:
            diff.before.add(before)
        if after:
            diff.after.add(after)
        fields = comparison.fields(before, after) if before and after else {}
        if fields or not (before and after):
            entry = before or after
            assert entry is not None
            inodes = [side.inode if side else None for side in (before, after)]
            add_change(diff, Change(entry.path, inodes[0], inodes[1], fields), everything or len(diff.changes) < FEW)
    return diff


def add_change(diff: FileDiff, change: Change, listed: bool) -> None:
    """Count a change, and list it if it is to be `listed`."""
    what = kind_of_change(change)
    diff.counts[what] += 1
    diff.fields.update(change.fields.keys())
    if what != "time":
        folder = known_folder(change.path, diff.changed_folders)
        diff.changed_folders.setdefault(folder, Counter())[what] += 1
    if listed:
        diff.changes.append(change)


def kind_of_change(change: Change) -> str:
    """Return added, removed, changed or time (nothing else differs)."""
    if not change.after:
        return "removed"
    if not change.before:
        return "added"
    return "time" if set(change.fields) == {TIME} else "changed"


def count_changes(diff: FileDiff) -> dict[str, Any]:
    """Return the counts of the differences."""
    return {
        "entries": diff.entries,
        **{what: diff.counts[what] for what in ("added", "removed", "changed", "time")},
        "fields": dict(sorted(diff.fields.items())),
        "unpacked": [diff.before.unpacked, diff.after.unpacked],
    }


def folder_changes(diff: FileDiff) -> dict[str, dict[str, Any]]:
    """Return the folders with differences, those whose size changed most first."""
    rows = {
        where: {"before": diff.before.folders[where], "after": diff.after.folders[where], **counts}
        for where, counts in diff.changed_folders.items()
    }
    order = sorted(rows, key=lambda where: (-abs(rows[where]["after"] - rows[where]["before"]), where))
    return {printable_path(where): rows[where] for where in order}


def change_row(change: Change) -> dict[str, Any]:
    """Return a change as data."""
    before, after = change.before, change.after
    inode = after or before
    assert inode is not None
    return {
        "path": printable_path(change.path),
        "what": kind_of_change(change),
        "kind": KINDS[inode.kind],
        "size": [side.size if side and KINDS[side.kind] == "file" else 0 for side in (before, after)],
        "fields": {name: list(values) for name, values in change.fields.items()},
    }
