"""The facts and rows of facts/derived/torch.yaml, from what `envbuild.matrix.collect.torch` read of the wheels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from envbuild.errors import InputError
from envbuild.matrix.collect.derived import Derived, DerivedFact, DerivedRow, Node
from envbuild.matrix.collect.releases import constraint, digest, needs, rows
from envbuild.matrix.collect.wheels import Metadata
from envbuild.matrix.index_releases import Cell, Release
from envbuild.matrix.version import oldest_first

COLLECTOR = "collector torch 1"
PATTERN = "torch-VERSION-cpXY-cpXY-manylinux*_{x86_64,aarch64}.whl"
LIBRARY = "torch/lib/libtorch_python.so"
READ = "METADATA of every wheel, markers evaluated for each machine and Python; the sha256 is of METADATA"
PINNED = {  # component → the packages that bring it
    "cudnn": re.compile(r"nvidia-cudnn-cu\d+"),
    "nccl": re.compile(r"nvidia-nccl-cu\d+"),
    "nvshmem": re.compile(r"nvidia-nvshmem-cu\d+"),
    "triton": re.compile(r"triton"),
    "cuda": re.compile(r"cuda-toolkit"),
}
BACKENDS = ("MPI", "UCC")  # torch.distributed back ends that need a build of one's own


@dataclass(frozen=True, slots=True)
class Seen:
    """What one wheel says. `cuda` is empty for a CPU build."""

    metadata: Metadata
    cuda: str
    version_sha256: str


@dataclass(frozen=True, slots=True)
class Code:
    """What one libtorch_python.so holds. `backends`: those of BACKENDS whose class names occur."""

    architectures: tuple[str, ...]
    backends: tuple[str, ...]
    sha256: str


@dataclass(frozen=True, slots=True)
class Known:
    """Everything read of one release."""

    release: Release
    seen: Mapping[str, Seen]  # file name → what it says
    code: Mapping[str, Code]  # arch → of one wheel

    @property
    def version(self) -> str:
        return self.release.version

    @property
    def when(self) -> dict[str, Node]:
        return {"torch": f"=={self.version}", "channel": "index"}

    def cells(self, value: Callable[[Cell, Seen], Mapping[str, Node] | None]) -> list[DerivedRow]:
        cells, notes = {}, {}
        for cell, build in self.release.wheels.items():
            seen = self.seen[build.file.name]
            cells[cell], notes[cell] = value(cell, seen), seen.metadata.sha256
        return rows(self.when, cells, notes)


def facts(known: Iterable[Known]) -> Derived:
    """The file, from what was read."""
    all_ = list(known)
    for one in all_:
        _check(one)

    def fact(
        id: str,
        kind: str,
        scope: str,
        rows: Iterable[DerivedRow],
        what: str,
        because: str,
        *,
        question: str = "",
        strength: str = "hard",
        type: str = "metadata",
        how: str = READ,
        default: bool = False,
    ) -> None:
        found.append(
            DerivedFact(
                id=f"torch.{id}",
                question=question,
                kind=kind,
                scope=scope,
                strength=strength,
                type=type,
                where=f"{PATTERN}: {what}",
                how=f"{COLLECTOR}; {how}",
                because=because,
                default=default,
                rows=tuple(rows),
            )
        )

    found: list[DerivedFact] = []
    fact(
        "channel-index",
        "provides",
        "install",
        [DerivedRow({"torch": f"=={one.version}"}, {"channel": "index"}) for one in all_],
        "file names",
        "torch=={torch} without a label is the package index's own wheel",
        how="the index lists it",
        default=True,  # who names another channel means a build from there
    )
    fact(
        "label-elsewhere",
        "forbids",
        "install",
        [DerivedRow({"channel": ["pytorch", "ngc"]}, {"torch": f"=={one.version}"}) for one in all_],
        "file names",
        "torch=={torch} without a label is no build of {channel}",
        how="builds of other channels carry a local label, by which they are told apart",
    )
    fact(
        "wheel-machine",
        "requires",
        "install",
        [DerivedRow(one.when, {"arch": sorted(one.code)}) for one in all_],
        "platform tags",
        "torch=={torch} has wheels for no other machine than these",
        question="torch-arch",
        how="platform tags of its Linux wheels",
    )
    fact(
        "python-tags",
        "requires",
        "install",
        [row for one in all_ for row in _pythons(one)],
        "interpreter and ABI tags",
        "torch=={torch}'s wheels are not built for Python {python}",
        question="torch-python",
        how="tags of its Linux wheels, not Requires-Python, which is weaker",
    )
    fact(
        "cuda-runtime",
        "provides",
        "runtime",
        [row for one in all_ for row in _cuda(one, cpu=False)],
        "torch/version.py",
        "torch=={torch}'s index wheel is built for CUDA {torch-cuda}",
        question="torch-cuda-runtime",
        how="cuda in torch/version.py of every wheel; the sha256 is of that file",
        type="measured",
    )
    fact(
        "cpu-only",
        "limits",
        "runtime",
        [row for one in all_ for row in _cuda(one, cpu=True)],
        "torch/version.py",
        "torch=={torch}'s index wheel for {arch} is built without CUDA",
        question="torch-cuda-runtime",
        how="cuda is None in torch/version.py; the sha256 is of that file",
        type="measured",
    )
    fact(
        "wheel-arch",
        "limits",
        "runtime",
        [row for one in all_ for row in _code_rows(one)],
        LIBRARY,
        "torch=={torch}'s wheel carries no code for {sm}",
        question="torch-sm",
        how="architecture string of the library, one wheel for each release and machine; the sha256 is of the library",
        type="measured",
    )
    fact(
        "process-groups",
        "forbids",
        "runtime",
        [row for one in all_ for row in _backends(one)],
        LIBRARY,
        "torch=={torch}'s index wheel has no ucc back end built in",
        how="a class name that does not occur in the library cannot be built in; the sha256 is of the library",
        type="measured",
    )
    for component in ("cudnn", "nccl", "nvshmem"):
        fact(
            component,
            "provides",
            "install",
            [row for one in all_ for row in _pins(one, component)],
            "METADATA",
            f"torch=={{torch}}'s wheel pins {component} {{row.{component}}}",
        )
    fact(
        "triton",
        "requires",
        "install",
        [row for one in all_ for row in _pins(one, "triton")],
        "METADATA",
        "torch=={torch}'s wheel asks for triton {row.triton}",
    )
    fact(
        "triton-left-out",
        "limits",
        "install",
        [row for one in all_ for row in _without(one, "triton")],
        "METADATA",
        "torch=={torch}'s wheel asks for no triton on Python {python}",
        strength="warn",
        how=f"{READ}; it asks for triton on other Pythons",
    )
    fact(
        "toolkit-pin",
        "limits",
        "install",
        [row for one in all_ for row in _toolkit(one)],
        "METADATA",
        "torch=={torch}'s wheel pins cuda-toolkit, and one environment holds one version of it",
    )
    components: dict[str, Mapping[str, Node]] = {
        "torch": {"values": [one.version for one in all_]},
        "cuda-from": {
            "kind": "name",
            "about": "where the CUDA toolkit of the image comes from",
            "hidden": True,
            "rank": 14,
            "values": ["wheels", "apt", "base"],
        },
    }
    return Derived(components, {}, tuple(one for one in found if one.rows))


def _check(one: Known) -> None:
    """Raises InputError for a CUDA build without architectures, or the other way round: wheels have changed."""
    for (arch, _), build in one.release.wheels.items():
        if bool(one.seen[build.file.name].cuda) != bool(one.code[arch].architectures):
            raise InputError(
                f"{build.file.name}: torch/version.py and {LIBRARY} do not agree on whether it is a CUDA build",
                "the collector must be taught what changed: envbuild/matrix/collect/torch.py",
            )


def _pythons(one: Known) -> list[DerivedRow]:
    by_arch: dict[str, list[str]] = {}
    for arch, python in one.release.wheels:
        by_arch.setdefault(arch, []).append(python)
    lists = {arch: oldest_first(pythons) for arch, pythons in sorted(by_arch.items())}
    if len({tuple(pythons) for pythons in lists.values()}) == 1:
        return [DerivedRow(one.when, {"python": next(iter(lists.values()))})]
    return [DerivedRow({**one.when, "arch": arch}, {"python": pythons}) for arch, pythons in lists.items()]


def _cuda(one: Known, *, cpu: bool) -> list[DerivedRow]:
    cells: dict[Cell, Mapping[str, Node] | None] = {}
    for cell, build in one.release.wheels.items():
        cuda = one.seen[build.file.name].cuda
        cells[cell] = None if cpu is bool(cuda) else {"torch-cuda": cuda or "-"}
    notes = {cell: one.seen[build.file.name].version_sha256 for cell, build in one.release.wheels.items()}
    return rows(one.when, cells, notes)


def _code_rows(one: Known) -> list[DerivedRow]:
    found = []
    for arch, code in sorted(one.code.items()):
        cubins: list[Node] = [name.removeprefix("sm_") for name in code.architectures if name.startswith("sm_")]
        ptx: list[Node] = [name.removeprefix("compute_") for name in code.architectures if name.startswith("compute_")]
        sm: Node = {"cubins": cubins} | ({"ptx": ptx} if ptx else {}) if code.architectures else "-"
        found.append(DerivedRow({**one.when, "arch": arch}, {"sm": sm}, digest([code.sha256])))
    return found


def _backends(one: Known) -> list[DerivedRow]:
    found = []
    for arch, code in sorted(one.code.items()):
        missing = " and ".join(f"no {name.lower()}" for name in BACKENDS if name not in code.backends)
        if "UCC" not in code.backends:
            note = f"{missing}; {digest([code.sha256])}"
            found.append(DerivedRow({**one.when, "arch": arch}, {"torch-ucc": "native"}, note))
    return found


def _pins(one: Known, component: str) -> list[DerivedRow]:
    def pin(cell: Cell, seen: Seen) -> Mapping[str, Node] | None:
        text = _asked(seen, cell, component)
        return {component: text} if text else None

    return one.cells(pin)


def _without(one: Known, component: str) -> list[DerivedRow]:
    """Cells without `component` on machines where other Pythons have it."""
    having = {
        arch
        for (arch, python), build in one.release.wheels.items()
        if _asked(one.seen[build.file.name], (arch, python), component)
    }
    return one.cells(
        lambda cell, seen: {component: "-"} if cell[0] in having and not _asked(seen, cell, component) else None
    )


def _toolkit(one: Known) -> list[DerivedRow]:
    def pin(cell: Cell, seen: Seen) -> Mapping[str, Node] | None:
        text = _asked(seen, cell, "cuda")
        match = re.fullmatch(r"==(\d+\.\d+)[\d.]*", text)
        return {"cuda": match[1]} if match else None

    return [DerivedRow({**row.when, "cuda-from": "wheels"}, row.then, row.note) for row in one.cells(pin)]


def _asked(seen: Seen, cell: Cell, component: str) -> str:
    """The constraint that METADATA puts on `component` there; empty when it does not ask for it."""
    for name, requirement in needs(seen.metadata, *cell).items():
        if PINNED[component].fullmatch(name):
            found = constraint(requirement.specifier)
            return found if isinstance(found, str) else " or ".join(found)
    return ""
