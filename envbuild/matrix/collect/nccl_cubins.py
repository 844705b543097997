"""facts/derived/nccl-cubins.yaml: for which GPU architectures the NCCL wheels of the package index hold code.

The fat binary headers of libnccl.so.2 are read. To come to them a library is unpacked whole, 0.2 to 0.5 GB, so a wheel
that the file already has a row of is not read again: what an index has under one digest does not change."""

from __future__ import annotations

import hashlib
import mmap
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from envbuild.inspector import elf, fatbin
from envbuild.matrix.collect import fact_diff
from envbuild.matrix.collect.fact_writer import Context, Derived, DerivedFact, DerivedRow, FlowNode
from envbuild.matrix.collect.release_rows import digest_note
from envbuild.matrix.facts.index_releases import list_releases
from envbuild.net.python_index import IndexFile
from envbuild.net.range_file import MalformedFileError

COLLECTOR = "collector cubins 2"  # another number: rows of an earlier one are read again
NAME = "nccl-cubins"
# Package → CUDA major, machines. The torch wheels for arm64 have CUDA from 13 on.
PACKAGES = {
    "nvidia-nccl-cu11": ("11", ("amd64",)),
    "nvidia-nccl-cu12": ("12", ("amd64",)),
    "nvidia-nccl-cu13": ("13", ("amd64", "arm64")),
}
LIBRARY = r".+/lib/libnccl\.so\.\d+"
LARGEST = 1 << 31


@dataclass(frozen=True, slots=True)
class NcclWheel:
    """One wheel: its NCCL, its CUDA major, its machine."""

    version: str
    cuda: str
    arch: str
    file: IndexFile

    @property
    def when(self) -> dict[str, FlowNode]:
        return {"nccl": f"=={self.version}", "torch-cuda": self.cuda, "channel": "index", "arch": self.arch}


def collect(context: Context) -> dict[str, Derived]:
    """Return the file. Raise InputError."""
    wheels = [
        NcclWheel(number, cuda, arch, build.file)
        for package, (cuda, machines) in PACKAGES.items()
        for number, release in list_releases(context.index, package).items()
        for (arch, _), build in release.wheels.items()
        if arch in machines
    ]
    known = _known(context)
    new = [wheel for wheel in wheels if _wheel_note(wheel) not in known]
    read = context.each("cubins", "reading device code of NCCL wheels", lambda wheel: _read(context, wheel), new)
    found = known | {_wheel_note(wheel): row for wheel, row in zip(new, read, strict=True)}
    return {NAME: make_facts([found[_wheel_note(wheel)] for wheel in wheels])}


def _known(context: Context) -> dict[str, DerivedRow]:
    """Return the rows that this collector wrote: wheel → row."""
    facts = fact_diff.list_facts(context.before(NAME))
    own = [fact for fact in facts if str(fact.get("source", {}).get("how", "")).startswith(f"{COLLECTOR};")]
    rows = [row for fact in own for row in fact_diff.list_rows(fact)]
    made = [DerivedRow(row.get("when", {}), row.get("then", {}), row.get("note", "")) for row in rows]
    return {row.note.partition(",")[0]: row for row in made if row.note.startswith("wheel sha256 ")}


def _wheel_note(wheel: NcclWheel) -> str:
    """Return the digest of a wheel as a note. Without a digest in the index it is the file name, which no row has, so
    that the wheel is read."""
    return f"wheel sha256 {wheel.file.sha256[:12] or wheel.file.name}"


def _read(context: Context, wheel: NcclWheel) -> DerivedRow:
    sha256 = hashlib.sha256()
    with tempfile.TemporaryFile() as stream, context.wheels.open(wheel.file) as archive:
        members = [name for name in archive.names() if re.fullmatch(LIBRARY, name)]
        if len(members) != 1:
            raise MalformedFileError(f"{len(members)} of its members are {LIBRARY}")
        for piece in archive.stream(members[0], LARGEST):
            stream.write(piece)
            sha256.update(piece)
        stream.flush()
        try:
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                found = fatbin.count_architectures(data, elf.parse(data, fatbin.SECTIONS).sections)
        except ValueError as error:  # also of mmap, for an empty file
            raise MalformedFileError(f"{members[0]}: {error}") from None
        if not found:
            raise MalformedFileError(f"{members[0]} holds no device code")
    sm = _compiled(sorted(found, key=_order))
    return DerivedRow(wheel.when, {"sm": sm}, f"{_wheel_note(wheel)}, library {digest_note([sha256.hexdigest()])}")


def make_facts(rows: Sequence[DerivedRow]) -> Derived:
    """Return the file."""
    fact = DerivedFact(
        id="nccl.wheel-cubins",
        question="nccl-sm",
        kind="limits",
        scope="runtime",
        type="measured",
        where="libnccl.so.2 of the nvidia-nccl-cu11, nvidia-nccl-cu12 and nvidia-nccl-cu13 wheels",
        how=f"{COLLECTOR}; headers of the fat binaries",
        because="nccl=={nccl}, the wheel that torch=={torch} requires, contains no code for {sm}",
        rows=tuple(rows),
    )
    return Derived(facts=(fact,) if fact.rows else ())


def _compiled(architectures: Sequence[str]) -> Mapping[str, FlowNode]:
    found: dict[str, FlowNode] = {}
    for key, prefix in (("cubins", "sm_"), ("ptx", "compute_")):
        names = [name.removeprefix(prefix) for name in architectures if name.startswith(prefix)]
        if names:
            found[key] = names
    return found


def _order(name: str) -> tuple[int, str]:
    kind, _, number = name.partition("_")
    return int(re.sub(r"\D", "", number)), kind + number
