"""The rows that one release of a package around torch has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from envbuild.core.distributions import MACHINES
from envbuild.matrix.collect.fact_writer import DerivedRow, FlowNode
from envbuild.matrix.collect.release_rows import (
    NEWEST_PYTHON,
    OLDEST_PYTHON,
    digest_note,
    find_requirements,
    release_cells,
    requirement_rows,
    specifier_constraint,
    specifiers,
)
from envbuild.matrix.collect.remote_wheel import Metadata
from envbuild.matrix.facts.index_releases import Build, Cell, Release
from envbuild.matrix.facts.version import oldest_first

PACKAGES = {  # of which component a requirement is
    "torch": "torch",
    "torchvision": "torchvision",
    "torchaudio": "torchaudio",
    "numpy": "numpy",
    "triton": "triton",
    "xformers": "xformers",
    "protobuf": "protobuf",
    "pydantic": "pydantic",
    "transformers": "transformers",
    "tokenizers": "tokenizers",
    "huggingface-hub": "huggingface-hub",
    r"flash-attn": "flash-attn",
    "transformer-engine": "transformer-engine",
    r"nvidia-nccl-cu\d+": "nccl",
    r"nvidia-cudnn-cu\d+": "cudnn",
}


@dataclass(frozen=True, slots=True)
class Project:
    """A component and its packages on the index. `questions`: those that its facts answer. `torch_part`: the package
    that has its requirement on torch, where that is another one. `read`: whether metadata is read. `suffixed`:
    there is a package for each CUDA, which its name ends with (``-cu12``)."""

    component: str
    packages: tuple[str, ...]
    oldest: str = "0"
    questions: tuple[str, ...] = ()
    torch_part: str = ""
    read: bool = True
    suffixed: bool = False


@dataclass(frozen=True, slots=True)
class ReleaseMetadata:
    """One release and its metadata by file name; `torch_part`: that of the part that needs torch."""

    release: Release
    metadata: Mapping[str, Metadata]
    torch_part: Metadata | None = None
    cells: Mapping[Cell, Build] = field(default_factory=dict)

    @classmethod
    def of(
        cls, release: Release, metadata: Mapping[str, Metadata], torch_part: Metadata | None = None
    ) -> ReleaseMetadata:
        pythons = {name: one.requires_python for name, one in metadata.items()}
        return cls(release, metadata, torch_part, release_cells(release, pythons))

    @property
    def requires_python(self) -> str:
        """Requires-Python; all files of a release have the same."""
        return next(iter(self.metadata.values())).requires_python

    def metadata_at(self, cell: Cell) -> tuple[str, Metadata]:
        """Return the file and the metadata that an installation there uses."""
        build = self.cells.get(cell)
        name = build.file.name if build else next(iter(self.metadata))
        return name, self.metadata[name]


def withdrawn_rows(project: Project, one: ReleaseMetadata) -> list[DerivedRow]:
    """Return the row of a release that upstream withdrew."""
    return [DerivedRow({}, {project.component: f"=={one.release.version}"})] if one.release.yanked else []


def pin_rows(project: Project, one: ReleaseMetadata, component: str) -> list[DerivedRow]:
    """Return what the release requires of another component, by machine and Python where that differs."""
    if component == project.component:
        return []
    named = re.compile(rf"(?i)({_pattern(component).replace('-', '[-_.]')})\b")
    lines = (line for metadata in (*one.metadata.values(), one.torch_part) if metadata for line in metadata.requires)
    if not any(named.match(line) for line in lines):  # markers, which cost far more to read, need not be read
        return []

    def required(cell: Cell) -> tuple[Mapping[str, FlowNode] | None, str]:
        _, metadata = one.metadata_at(cell)
        if component == "torch" and one.torch_part:
            metadata = one.torch_part
        alone = replace(metadata, requires=tuple(filter(named.match, metadata.requires)))
        for name, requirement in find_requirements(alone, *cell).items():
            if re.fullmatch(_pattern(component), name):
                return {
                    component: specifier_constraint(requirement.specifier, labels=component == "torch")
                }, metadata.sha256
        return None, metadata.sha256

    everywhere = {cell: required(cell) for cell in _places(one)}
    when: dict[str, FlowNode] = {project.component: f"=={one.release.version}"}
    return requirement_rows(
        when,
        {cell: then for cell, (then, _) in everywhere.items()},
        {cell: sha256 for cell, (_, sha256) in everywhere.items()},
    )


def _pattern(component: str) -> str:
    return next(pattern for pattern, name in PACKAGES.items() if name == component)


def _places(one: ReleaseMetadata) -> list[Cell]:
    """Return where a release can be installed: where it has wheels, and everywhere when it has an sdist. One Python
    represents all where there are only sdists, as those are the same for all."""
    found = list(one.cells)
    if one.release.sdist:
        allowed = specifiers(one.requires_python)
        any_python = [
            f"3.{minor}" for minor in range(OLDEST_PYTHON, NEWEST_PYTHON + 1) if allowed.contains(f"3.{minor}.99")
        ]
        pythons = sorted({python for _, python in found}) or any_python[-1:]
        missing = MACHINES.keys() - {arch for arch, _ in found}
        found += [(arch, python) for arch in sorted(missing) for python in pythons]
    return found


def python_rows(project: Project, one: ReleaseMetadata) -> list[DerivedRow]:
    """Return the rows of the Pythons that a release can be installed for."""
    when: dict[str, FlowNode] = {project.component: f"=={one.release.version}"}
    note = digest_note(metadata.sha256 for metadata in one.metadata.values())
    tags = {python for _, python in one.release.wheels}
    if one.release.sdist or tags == {"any"}:
        wanted = specifier_constraint(specifiers(one.requires_python))
        return [DerivedRow(when, {"python": wanted if wanted != "*" else "3"}, note)]
    return _by_arch(when, one.cells, note)


def wheel_rows(project: Project, one: ReleaseMetadata) -> list[DerivedRow]:
    """Return the rows of the Pythons that have wheels, of a release that has an sdist too."""
    tags = {python for _, python in one.release.wheels}
    if not one.release.sdist or not tags or tags == {"any"}:
        return []
    note = digest_note(metadata.sha256 for metadata in one.metadata.values())
    return _by_arch({project.component: f"=={one.release.version}"}, one.cells, note)


def _by_arch(when: Mapping[str, FlowNode], found: Mapping[Cell, Build], note: str) -> list[DerivedRow]:
    lists = {arch: oldest_first(python for other, python in found if other == arch) for arch, _ in sorted(found)}
    if len({tuple(pythons) for pythons in lists.values()}) == 1:
        return [DerivedRow(when, {"python": next(iter(lists.values()))}, note)]
    return [DerivedRow({**when, "arch": arch}, {"python": pythons}, note) for arch, pythons in lists.items()]


def machine_rows(project: Project, one: ReleaseMetadata) -> list[DerivedRow]:
    """Return the row of the only machine that has wheels, where it is one."""
    archs = sorted({arch for arch, _ in one.release.wheels})
    if not archs or len(archs) == len(MACHINES):
        return []
    return [DerivedRow({project.component: f"=={one.release.version}"}, {"arch": archs[0]})]


def core_rows(project: Project, one: ReleaseMetadata) -> list[DerivedRow]:
    """Return the row of the CUDA versions that have a core wheel of Transformer Engine."""
    if project.component != "transformer-engine":
        return []
    metadata = next(iter(one.metadata.values()))
    majors = {match[1] for line in metadata.requires if (match := re.match(r"transformer[-_]engine[-_]cu(\d+)", line))}
    if not majors:
        return []
    wanted: list[FlowNode] = [*sorted(majors)]
    when: dict[str, FlowNode] = {"transformer-engine": f"=={one.release.version}"}
    return [DerivedRow(when, {"torch-cuda": wanted if len(wanted) > 1 else wanted[0]}, digest_note([metadata.sha256]))]
