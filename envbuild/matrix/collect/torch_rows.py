"""The rows that one release of torch has in the facts of facts/derived/torch.yaml."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from envbuild.matrix.collect.fact_writer import DerivedRow, FlowNode
from envbuild.matrix.collect.release_rows import digest_note, find_requirements, requirement_rows, specifier_constraint
from envbuild.matrix.collect.remote_wheel import Metadata
from envbuild.matrix.facts.index_releases import Cell, Release
from envbuild.matrix.facts.version import oldest_first

LIBRARY = "torch/lib/libtorch_python.so"
PINNED = {  # component → the packages that contain it
    "cudnn": re.compile(r"nvidia-cudnn-cu\d+"),
    "nccl": re.compile(r"nvidia-nccl-cu\d+"),
    "nvshmem": re.compile(r"nvidia-nvshmem-cu\d+"),
    "triton": re.compile(r"triton"),
    "cuda": re.compile(r"cuda-toolkit"),
}
REPLACEABLE = {("2.9.1", "cudnn")}  # its release notes name another one than the pin: facts/torch.yaml has both
BACKENDS = ("MPI", "UCC")  # torch.distributed back ends that need a build of one's own


@dataclass(frozen=True, slots=True)
class WheelFacts:
    """The metadata and the CUDA version of one wheel. `cuda` is empty for a CPU build."""

    metadata: Metadata
    cuda: str
    version_sha256: str


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """The device code of one libtorch_python.so. `backends`: those of BACKENDS whose class names occur."""

    architectures: tuple[str, ...]
    backends: tuple[str, ...]
    sha256: str


@dataclass(frozen=True, slots=True)
class TorchRelease:
    """Everything read of one release."""

    release: Release
    seen: Mapping[str, WheelFacts]  # by file name
    code: Mapping[str, DeviceCode]  # arch → of one wheel

    @property
    def version(self) -> str:
        return self.release.version

    @property
    def when(self) -> dict[str, FlowNode]:
        return {"torch": f"=={self.version}", "channel": "index"}

    def cells(self, value: Callable[[Cell, WheelFacts], Mapping[str, FlowNode] | None]) -> list[DerivedRow]:
        cells, notes = {}, {}
        for cell, build in self.release.wheels.items():
            seen = self.seen[build.file.name]
            cells[cell], notes[cell] = value(cell, seen), seen.metadata.sha256
        return requirement_rows(self.when, cells, notes)


def index_rows(known: TorchRelease) -> list[DerivedRow]:
    """Return the row which states that a version without a label is a wheel of the index."""
    return [DerivedRow({"torch": f"=={known.version}"}, {"channel": "index"})]


def unlabelled_rows(known: TorchRelease) -> list[DerivedRow]:
    """Return the row which states that other channels have no build of this version without a label."""
    return [DerivedRow({"channel": ["pytorch", "ngc"]}, {"torch": f"=={known.version}"})]


def machine_rows(known: TorchRelease) -> list[DerivedRow]:
    """Return the row of the machines that have wheels."""
    return [DerivedRow(known.when, {"arch": sorted(known.code)})]


def python_rows(known: TorchRelease) -> list[DerivedRow]:
    """Return rows of the Pythons that have wheels, by machine where these differ."""
    by_arch: dict[str, list[str]] = {}
    for arch, python in known.release.wheels:
        by_arch.setdefault(arch, []).append(python)
    lists = {arch: oldest_first(pythons) for arch, pythons in sorted(by_arch.items())}
    if len({tuple(pythons) for pythons in lists.values()}) == 1:
        return [DerivedRow(known.when, {"python": next(iter(lists.values()))})]
    return [DerivedRow({**known.when, "arch": arch}, {"python": pythons}) for arch, pythons in lists.items()]


def cuda_rows(known: TorchRelease, *, cpu: bool) -> list[DerivedRow]:
    """Return rows of the CUDA version that wheels are built for; of `cpu` wheels that there is none."""
    cells: dict[Cell, Mapping[str, FlowNode] | None] = {}
    for cell, build in known.release.wheels.items():
        cuda = known.seen[build.file.name].cuda
        cells[cell] = None if cpu is bool(cuda) else {"torch-cuda": cuda or "-"}
    notes = {cell: known.seen[build.file.name].version_sha256 for cell, build in known.release.wheels.items()}
    return requirement_rows(known.when, cells, notes)


def architecture_rows(known: TorchRelease) -> list[DerivedRow]:
    """Return rows of the GPUs that the library has code for."""
    found = []
    for arch, code in sorted(known.code.items()):
        cubins: list[FlowNode] = [name.removeprefix("sm_") for name in code.architectures if name.startswith("sm_")]
        ptx: list[FlowNode] = [
            name.removeprefix("compute_") for name in code.architectures if name.startswith("compute_")
        ]
        sm: FlowNode = {"cubins": cubins} | ({"ptx": ptx} if ptx else {}) if code.architectures else "-"
        found.append(DerivedRow({**known.when, "arch": arch}, {"sm": sm}, digest_note([code.sha256])))
    return found


def missing_backend_rows(known: TorchRelease) -> list[DerivedRow]:
    """Return a row for each machine whose library lacks the back end UCC."""
    found = []
    for arch, code in sorted(known.code.items()):
        missing = " and ".join(f"no {name.lower()}" for name in BACKENDS if name not in code.backends)
        if "UCC" not in code.backends:
            note = f"{missing}; {digest_note([code.sha256])}"
            found.append(DerivedRow({**known.when, "arch": arch}, {"torch-ucc": "native"}, note))
    return found


def pin_rows(known: TorchRelease, component: str) -> list[DerivedRow]:
    """Return rows of what the metadata requires of a component."""
    if (known.version, component) in REPLACEABLE:
        return []

    def pin(cell: Cell, seen: WheelFacts) -> Mapping[str, FlowNode] | None:
        text = _required(seen, cell, component)
        return {component: text} if text else None

    return known.cells(pin)


def missing_pin_rows(known: TorchRelease, component: str) -> list[DerivedRow]:
    """Return rows of the Pythons without `component`, on machines where other Pythons have it."""
    having = {
        arch
        for (arch, python), build in known.release.wheels.items()
        if _required(known.seen[build.file.name], (arch, python), component)
    }
    return known.cells(
        lambda cell, seen: {component: "-"} if cell[0] in having and not _required(seen, cell, component) else None
    )


def toolkit_rows(known: TorchRelease) -> list[DerivedRow]:
    """Return rows of the CUDA toolkit that the wheels contain."""

    def pin(cell: Cell, seen: WheelFacts) -> Mapping[str, FlowNode] | None:
        text = _required(seen, cell, "cuda")
        match = re.fullmatch(r"==(\d+\.\d+)[\d.]*", text)
        return {"cuda": match[1]} if match else None

    return [DerivedRow({**row.when, "cuda-from": "wheels"}, row.then, row.note) for row in known.cells(pin)]


def _required(seen: WheelFacts, cell: Cell, component: str) -> str:
    """Return the constraint that METADATA puts on `component` there; empty when it does not require it."""
    for name, requirement in find_requirements(seen.metadata, *cell).items():
        if PINNED[component].fullmatch(name):
            found = specifier_constraint(requirement.specifier)
            return found if isinstance(found, str) else " or ".join(found)
    return ""
