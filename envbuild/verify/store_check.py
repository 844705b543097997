"""The check of a store: every byte that has a digest or a checksum is read and compared.

Packs have checksums, layers, blobs and finished images have digests, records must have their keys. What has neither is
not compared: images that were exported without their sha256, logs, caches.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envbuild.core.console import Reporter
from envbuild.core.digest import stored_digest
from envbuild.core.errors import DamagedPackError, EnvbuildError
from envbuild.core.regular_file import mode_at
from envbuild.core.store.gc import list_folder, records, remove_entry
from envbuild.core.store.json_files import read_sealed
from envbuild.core.store.records import file_names
from envbuild.core.store.store import LayerRecord, Store, UnitRecord
from envbuild.core.text import amount, counted, printable

KINDS = ("packs", "layers", "blobs", "units", "images", "artifacts")
TASK = "check"


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged entry of a store."""

    kind: str
    path: Path
    reason: str


@dataclass(slots=True)
class StoreCheck:
    """The result: entries that were compared by kind, bytes of the files among them that were read, what is damaged,
    and files without a digest to compare with.

    `removed`: the damaged entries were removed, but for `remaining`.
    """

    compared: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    size: int = 0
    damaged: list[Damage] = field(default_factory=list)
    unknown: list[Path] = field(default_factory=list)
    removed: bool = False
    remaining: list[Damage] = field(default_factory=list)


Entry = tuple[Path, Callable[[], str]]  # and a function that reads it and returns what is wrong, or ""


def check_store(store: Store, reporter: Reporter, *, repair: bool) -> StoreCheck:
    """Read the store and compare it with its digests and checksums; with `repair`, remove what is damaged, so that the
    next command that needs it makes or fetches it again.

    With `repair` the caller has the store alone (`envbuild.core.store.use`).
    """
    found = StoreCheck()
    for kind, list_entries in ENTRIES.items():
        entries = list(list_entries(store, found))
        sizes = [path.lstat().st_size if is_plain(path) else 0 for path, _ in entries]
        before, total = found.size, sum(sizes)
        reporter.start(TASK, f"{kind}: {len(entries)} to check")
        for (path, look), size in zip(entries, sizes, strict=True):
            reporter.note(TASK, path.name)
            reason = look()
            found.compared[kind] += 1
            found.size += size
            reporter.advance(TASK, found.size - before, total)
            if reason:
                found.damaged.append(Damage(kind, path, reason))
        reporter.finish(TASK)
    if repair:
        found.remaining = [damage for damage in found.damaged if not remove_damaged(damage, store)]
        found.removed = True
    return found


def remove_damaged(damage: Damage, store: Store) -> bool:
    """Remove a damaged entry. Return False if this user cannot: it is another one's folder, for example."""
    try:
        if damage.kind == "layers":
            damage.path.rename(store.tmp / f"removed-{os.urandom(8).hex()}")
        else:
            remove_entry(damage.path, store)
    except OSError:
        return False
    return True


def packs(store: Store, found: StoreCheck) -> Iterator[Entry]:
    """Yield the packs of this format version; those of another are not read by anything."""
    from envbuild.core.store.build_records import PACK_VERSION

    for path in list_folder(store.root / "packs"):
        if path.suffix == f".v{PACK_VERSION}" and not path.name.startswith("."):
            yield path, lambda path=path: pack_fault(path)  # type: ignore[misc]


def pack_fault(path: Path) -> str:
    from envbuild.squashfs.pack.checksums import check_pack

    try:
        check_pack(path)
    except DamagedPackError as error:
        return error.message
    return ""


def layers(store: Store, found: StoreCheck) -> Iterator[Entry]:
    """Yield the layers that this user built: files of another user's have other owners for this one."""
    for path in list_folder(store.layer_path("any").parent):
        if len(path.name) == 64 and path.stat().st_uid == os.geteuid():
            yield path, lambda path=path: layer_fault(store, path)  # type: ignore[misc]


def layer_fault(store: Store, path: Path) -> str:
    from envbuild.core.userns.call import call

    record = LayerRecord.parse(read_json_value(path / "layer.json"))  # as the commands that use it read it
    if record is None or record.hex != path.name:
        return "its record is damaged"
    got: str = call(layer_digest, store=str(store.root), diff_id=path.name)
    return "" if got == path.name else f"its files differ: expected sha256 {path.name}, got {got}"


def layer_digest(*, store: str, diff_id: str) -> str:
    """Return the digest of the files of a layer as they are now, or why they cannot be read."""
    from envbuild.oci.layers.layer import stored_members, write_members
    from envbuild.oci.tar.writer import TarSink

    tar = TarSink()
    try:
        write_members(stored_members(Store(Path(store)), diff_id), [tar])
    except (EnvbuildError, OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return tar.sha256


def blobs(store: Store, found: StoreCheck) -> Iterator[Entry]:
    for path in list_folder(store.root / "blobs" / "sha256"):
        if len(path.name) == 64:
            yield path, lambda path=path: digest_fault(path, path.name)  # type: ignore[misc]


def checked_digest(value: Any) -> str:
    """Return a sha256 of a record, which another user may have written; empty if it is not one."""
    return value if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) else ""


def digest_fault(path: Path, expected: str) -> str:
    got = stored_digest(path)
    return "" if got == expected else f"expected sha256 {expected}, got {got}"


def units(store: Store, found: StoreCheck) -> Iterator[Entry]:
    for path in list_folder(store.root / "units"):
        if path.suffix == ".json" and not path.name.startswith("."):
            yield path, lambda path=path: unit_fault(path)  # type: ignore[misc]


def unit_fault(path: Path) -> str:
    record = UnitRecord.parse(read_json_value(path))
    return "" if record and record.key == path.stem else "the record is damaged"


def images(store: Store, found: StoreCheck) -> Iterator[Entry]:
    for path in list_folder(store.root / "images"):
        if path.suffix == ".json" and not path.name.startswith("."):
            yield path, lambda path=path: image_fault(path)  # type: ignore[misc]


def image_fault(path: Path) -> str:
    value = read_json_value(path)
    whole = isinstance(value, dict) and {"made", "stat", "holds"} <= value.keys() and isinstance(value["made"], dict)
    return "" if whole else "the record is damaged"


def artifacts(store: Store, found: StoreCheck) -> Iterator[Entry]:
    """Yield the finished files whose record has a sha256; add the other squashfs files to those that are unknown."""
    files = {
        path.name: path for path in list_folder(store.root / "artifacts") if path.suffix == ".sqsh" and is_plain(path)
    }
    known = {}
    for _, record in records(store, set(files)):
        made = record["made"]
        known[file_names(record)["artifact"]] = checked_digest(made.get("sha256"))
    for name, path in files.items():
        if known.get(name):
            yield path, lambda path=path, sha256=known[name]: digest_fault(path, sha256)  # type: ignore[misc]
        else:
            found.unknown.append(path)


def is_plain(path: Path) -> bool:
    return not path.is_symlink() and stat.S_ISREG(mode_at(path)) and not path.name.startswith(".")


def read_json_value(path: Path) -> Any:
    """Return the value of a record; None if it cannot be read, or is not what was written."""
    try:
        return read_sealed(path)
    except OSError:
        return None


ENTRIES: dict[str, Callable[[Store, StoreCheck], Iterator[Entry]]] = {
    "packs": packs,
    "layers": layers,
    "blobs": blobs,
    "units": units,
    "images": images,
    "artifacts": artifacts,
}


def describe(found: StoreCheck, store: Store) -> str:
    """Return lines for the terminal: what was compared, each damaged entry, and what to do."""
    counts = ", ".join(counted(count, kind.removesuffix("s")) for kind, count in found.compared.items())
    lines = [f"{store.root}: compared {counts}; {amount(found.size)} of files"]
    if found.unknown:
        lines.append(f"not compared, because no sha256 of them is recorded: {counted(len(found.unknown), 'image')}")
    for item in found.damaged:
        verb = "damaged" if not found.removed else "not removed" if item in found.remaining else "removed"
        lines.append(f"{verb}: {printable(item.path.relative_to(store.root))}: {item.reason}")
    if not found.damaged:
        lines.append("nothing is damaged")
    elif found.remaining:
        lines.append("what remains belongs to another user, who removes it: envbuild store check --repair")
    elif found.removed:
        lines.append("the next command that needs them makes or fetches them again")
    else:
        lines.append("remove what is damaged, so that it is made or fetched again: envbuild store check --repair")
    return "\n".join(lines)
