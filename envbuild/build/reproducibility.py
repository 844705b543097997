"""The difference between two builds of one image: the first unit, the first file, and in what."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from envbuild.build.engines.base import BuildOptions, Engine, build_units
from envbuild.build.plan.units import Plan
from envbuild.core.console import Reporter
from envbuild.core.errors import BuildError
from envbuild.core.store.store import LayerRecord, Store, UnitRecord
from envbuild.core.text import printable
from envbuild.oci.tar.member import Kind, Member
from envbuild.oci.tar.reader import read_tar
from envbuild.oci.tar.unpack_limit import HoleCount
from envbuild.oci.tar.writer import ZEROS

# Of an entry
NAMES = ("type", "mode", "uid", "gid", "mtime", "link", "size", "device number", "attributes", "content")


def rebuild_and_compare(
    plan: Plan, layers: Sequence[str], engine: Engine, store: Store, reporter: Reporter, options: BuildOptions
) -> None:
    """Build every unit of an image a second time and compare with the first build, whose layers are `layers` (diff ids,
    bottom first). Raises BuildError naming the first difference; the store preserves the first build."""
    first = {unit: store.unit(key) for unit, key in plan.keys().items()}
    second = build_units(engine, plan, store, reporter, replace(options, rebuild=True))
    try:
        compare_units(plan, first, store)
        compare_layers(layers, second.layers, store)
    finally:
        for record in first.values():
            if record:
                store.record_unit(record)


def compare_units(plan: Plan, first: Mapping[str, UnitRecord | None], store: Store) -> None:
    """Compare what the store has of each unit with the records of an earlier build. Raises BuildError with the first
    file that differs, in the first unit that does: those above only inherit it."""
    for unit, key in plan.keys().items():
        before, after = first[unit], store.unit(key)
        if before and after and product_digests(before) != product_digests(after):
            what = f"unit {unit} is not reproducible"
            hint = "repair its build: a path, a time or a process id gets into the file"
            if before.source:
                what = f"unit {unit}, taken from {before.source}, differs from its build here"
                hint = "the unit is not reproducible (make --no-cache --check finds out), or the cache was changed"
            raise BuildError(
                f"{what}: {first_difference(before, after, store)}",
                hint=hint,
                where=str(store.log(unit, key)),
            )


def product_digests(record: UnitRecord) -> tuple[object, ...]:
    """Return what a unit is compared by: its record also names the cache that it was taken from."""
    return (record.layer and record.layer.diff_id, record.wheels)


def compare_layers(first: Sequence[str], second: Sequence[LayerRecord], store: Store) -> None:
    """Compare the layers of an image (diff ids, bottom first) with those of a second build, for engines that keep no
    records of single units. Raises BuildError with the first file that differs."""
    if len(first) != len(second):
        raise BuildError(f"the image has {len(first)} layers once and {len(second)} the other time")
    for before, after in zip(first, second, strict=True):
        if before != after.diff_id:
            found = describe_difference(
                read_layer_entries(before, store), read_layer_entries(after.diff_id, store), "layer"
            )
            raise BuildError(
                f"the layer of {after.unit or 'the image'} is not reproducible: {found}",
                hint="repair its build: a path, a time or a process id gets into the file",
            )


def first_difference(before: UnitRecord, after: UnitRecord, store: Store) -> str:
    """Return one line: a path and what differs there (its content, its mode, …), or which path only one of the two
    has."""
    if before.layer and after.layer:
        return describe_difference(
            read_layer_entries(before.layer.diff_id, store), read_layer_entries(after.layer.diff_id, store), "layer"
        )
    for (name, old), (other, new) in zip(before.wheels, after.wheels, strict=False):
        if name != other:
            return f"the wheel is called {name} once and {other} the other time"
        if old != new:
            one, two = read_wheel_entries(store.blob(old)), read_wheel_entries(store.blob(new))
            return f"in {name}: {describe_difference(one, two, 'wheel')}"
    return "one build left more wheels than the other"


Entries = dict[str, tuple[object, ...]]  # path → what NAMES names


def describe_difference(old: Entries, new: Entries, what: str) -> str:
    """Return one line: the first path that differs between two layers or wheels (`what`), and in what."""
    path, why = find_difference(old, new, what)
    return f"{path} {why}" if path else why


def find_difference(old: Entries, new: Entries, what: str) -> tuple[str, str]:
    """Return the first path that differs, and how; an empty path where all entries are equal."""
    for path in sorted(old.keys() | new.keys()):
        if path not in new or path not in old:
            return path, f"is only in the {'first' if path in old else 'second'} {what}"
        if old[path] != new[path]:
            names = [name for name, left, right in zip(NAMES, old[path], new[path], strict=True) if left != right]
            return path, f"differs in {', '.join(names)}"
    return "", "the order of entries differs"


def read_layer_entries(diff_id: str, store: Store) -> Entries:
    """Return the entries of a layer of the store."""
    from envbuild.oci.layers.layer import write_layer_tar
    from envbuild.squashfs.pack.unpack import ensure_trees

    ensure_trees(store, [diff_id])
    with tempfile.TemporaryFile(dir=store.tmp) as file:
        write_layer_tar(store, store.layer(diff_id), file)
        file.seek(0)
        sink = EntrySink()
        read_tar(file, sink)
    return sink.entries


class EntrySink:
    """Sink that has the entries of a layer, with digests of their contents. Raises LayerTooLargeError for too many
    bytes in holes."""

    def __init__(self) -> None:
        self.entries: Entries = {}
        self.holes = HoleCount()

    def begin(self, member: Member) -> None:
        self.member, self.digest = member, hashlib.sha256()

    def data(self, chunk: bytes) -> None:
        self.digest.update(chunk)

    def zeros(self, count: int) -> None:
        self.holes.add(count)
        while count > 0:
            piece = memoryview(ZEROS)[:count]
            self.digest.update(piece)
            count -= len(piece)

    def end(self) -> None:
        member = self.member
        content = self.digest.hexdigest() if member.kind is Kind.FILE else ""
        self.entries[os.fsdecode(member.path)] = (
            member.kind, member.mode, member.uid, member.gid, member.mtime, member.link, member.size, member.device,
            dict(member.xattrs), content,
        )  # fmt: skip

    def close(self) -> None:
        """Do nothing: all is read."""


def read_wheel_entries(wheel: Path) -> Entries:
    """Return path → fields and checksum of a wheel; nothing of one that is not a zip archive: a step made it."""
    import zipfile

    try:
        with zipfile.ZipFile(wheel) as archive:
            return {
                printable(info.filename): (
                    "",
                    info.external_attr >> 16,
                    0,
                    0,
                    str(info.date_time),
                    "",
                    info.file_size,
                    None,
                    None,
                    info.CRC,
                )
                for info in archive.infolist()
            }
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return {}
