"""facts/derived/torchvision.yaml, vllm.yaml and others: which versions there are on the package index, for which
Pythons and machines, and which versions of other components their metadata asks for.

METADATA of every wheel is read, because wheels of one release differ (torchvision pins torch on x86_64 and not on
aarch64 up to 0.14). Of releases without wheels PKG-INFO of the sdist is read, which may leave out what the build asks
for in the end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from envbuild.bases import MACHINES
from envbuild.lock.index import IndexFile
from envbuild.matrix.collect.derived import Context, Derived, DerivedFact, DerivedRow, Node
from envbuild.matrix.collect.releases import (
    NEWEST_PYTHON,
    OLDEST_PYTHON,
    cells,
    constraint,
    digest,
    needs,
    rows,
    specifiers,
)
from envbuild.matrix.collect.wheels import Metadata
from envbuild.matrix.index_releases import Build, Cell, Release, releases
from envbuild.matrix.version import newest_first, oldest_first

COLLECTOR = "collector pins 1"
PACKAGES = {  # of which component a requirement is
    "torch": "torch",
    "torchvision": "torchvision",
    "triton": "triton",
    "xformers": "xformers",
    "protobuf": "protobuf",
    r"flash-attn": "flash-attn",
    "transformer-engine": "transformer-engine",
    r"nvidia-nccl-cu\d+": "nccl",
    r"nvidia-cudnn-cu\d+": "cudnn",
}
LIMITED = ("protobuf",)  # so common that asking for it is no reason to bring it into an answer


@dataclass(frozen=True, slots=True)
class Project:
    """A component and its packages on the index. `questions`: those that its facts answer. `torch_part`: the package
    that has its requirement on torch, where that is another one. `read`: whether metadata is looked at. `suffixed`:
    there is a package for each CUDA, which its name ends with (``-cu12``)."""

    component: str
    packages: tuple[str, ...]
    oldest: str = "0"
    questions: tuple[str, ...] = ()
    torch_part: str = ""
    read: bool = True
    suffixed: bool = False


PROJECTS = (
    Project("torchvision", ("torchvision",), "0.11", ("torchvision-torch", "torchvision-python")),
    Project("xformers", ("xformers",), "0.0.16", ("xformers-torch", "xformers-python")),
    Project("vllm", ("vllm",), "0.2", ("vllm-torch", "vllm-python")),
    Project("triton", ("triton",), "2.0"),
    Project("deepspeed", ("deepspeed",), "0.3"),
    Project("setuptools", ("setuptools",), "59"),  # 59.6.0 is the last for Python 3.6
    Project("flash-attn", ("flash-attn",), "0.2"),
    Project("transformer-engine", ("transformer-engine",), "1.9", torch_part="transformer-engine-torch"),
    Project("nccl", ("nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13"), read=False),
    Project("cudnn", ("nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13"), read=False),
    Project("nvshmem", ("nvidia-nvshmem-cu12", "nvidia-nvshmem-cu13"), read=False, suffixed=True),
    Project("ucx", ("libucx-cu12", "libucx-cu13"), read=False),
)


@dataclass(frozen=True, slots=True)
class Known:
    """What was read of one release: metadata by file name; `torch_part`: that of the part that needs torch."""

    release: Release
    metadata: Mapping[str, Metadata]
    torch_part: Metadata | None = None
    cells: Mapping[Cell, Build] = field(default_factory=dict)

    @classmethod
    def of(cls, release: Release, metadata: Mapping[str, Metadata], torch_part: Metadata | None = None) -> Known:
        pythons = {name: one.requires_python for name, one in metadata.items()}
        return cls(release, metadata, torch_part, cells(release, pythons))

    @property
    def requires_python(self) -> str:
        """Requires-Python; all files of a release have the same."""
        return next(iter(self.metadata.values())).requires_python

    def asks(self, cell: Cell) -> tuple[str, Metadata]:
        """What installing the release there goes by."""
        build = self.cells.get(cell)
        name = build.file.name if build else next(iter(self.metadata))
        return name, self.metadata[name]


def collect(context: Context) -> dict[str, Derived]:
    """Raises InputError."""
    found = {
        package: releases(context.index, package, project.oldest, yanked=True)
        for project in PROJECTS
        for package in (*project.packages, *filter(None, [project.torch_part]))
    }
    read = [project for project in PROJECTS if project.read]
    wanted: dict[str, IndexFile] = {}
    for project in read:
        for package in (*project.packages, *filter(None, [project.torch_part])):
            for release in found[package].values():
                wanted |= {file.name: file for file in files(release)}
    metadata = dict(
        context.each(
            "pins",
            "reading metadata of packages around torch",
            lambda file: (file.name, context.wheels.metadata(file)),
            list(wanted.values()),
        )
    )
    written = {}
    for project in PROJECTS:
        own = {number: release for package in reversed(project.packages) for number, release in found[package].items()}
        if not project.read:
            usable = [number for number, release in own.items() if not release.yanked and release.wheels]
            values = {project.component: {"values": newest_first(usable)}}
            written[project.component] = Derived(values, {}, suffixed(project, found) if project.suffixed else ())
            continue
        parts = found.get(project.torch_part, {})
        known = []
        for release in own.values():
            part = next((metadata[file.name] for file in files(parts.get(release.version))), None)
            own_metadata = {file.name: metadata[file.name] for file in files(release)}
            known.append(Known.of(release, own_metadata, part))
        written[project.component] = facts(project, known)
    return written


def suffixed(project: Project, found: Mapping[str, Mapping[str, Release]]) -> tuple[DerivedFact, ...]:
    """For which CUDA and which machines there are wheels of a component with a package for each CUDA."""
    name = project.component
    majors: dict[str, list[str]] = {}
    machines: dict[str, list[DerivedRow]] = {}
    for package in project.packages:
        major = package.rpartition("-cu")[2]
        for number, release in found[package].items():
            if release.wheels and not release.yanked:
                majors.setdefault(number, []).append(major)
                archs: list[Node] = [*sorted({arch for arch, _ in release.wheels})]
                when: dict[str, Node] = {name: f"=={number}", "cuda": ["-", major]}
                machines.setdefault(number, []).append(DerivedRow(when, {"arch": archs}))
    newest = newest_first(majors)
    cuda = [DerivedRow({name: f"=={number}", "cuda": [*majors[number]]}, {}) for number in newest]
    where = f"{', '.join(project.packages)} on the package index"
    return (
        DerivedFact(
            id=f"{name}.wheel-cuda",
            question=f"{name}-cuda",
            kind="limits",
            scope="install",
            type="metadata",
            where=f"{where}: which of them has the release",
            how=f"{COLLECTOR}; the end of the package's name",
            rows=tuple(cuda),
        ),
        DerivedFact(
            id=f"{name}.wheel-machine",
            kind="limits",
            scope="install",
            type="metadata",
            where=f"{where}: platform tags of wheels",
            how=f"{COLLECTOR}; platform tags of the Linux wheels",
            because=f"there is no wheel of {name} {{{name}}} for {{arch}}",
            rows=tuple(row for number in newest for row in _once(machines[number])),
        ),
    )


def _once(found: Sequence[DerivedRow]) -> list[DerivedRow]:
    """One row without a condition on CUDA where all say the same."""
    if len({str(row.then) for row in found}) > 1:
        return list(found)
    return [DerivedRow({key: value for key, value in found[0].when.items() if key != "cuda"}, found[0].then)]


def files(release: Release | None) -> list[IndexFile]:
    """The files of a release whose metadata counts: its wheels, else its sdist."""
    if release is None:
        return []
    return [build.file for build in release.builds()] or ([release.sdist] if release.sdist else [])


def facts(project: Project, known: Iterable[Known]) -> Derived:
    """The file of one project, from what was read."""
    all_ = list(known)
    name = project.component
    shown = f"{name} {{{name}}}"
    found: list[DerivedFact] = []

    def fact(
        id: str,
        rows: Iterable[DerivedRow],
        what: str,
        because: str,
        how: str,
        *,
        kind: str = "limits",
        strength: str = "hard",
        question: str = "",
        condition: str = "",
    ) -> None:
        made = DerivedFact(
            id=f"{name}.{id}",
            question=question,
            kind=kind,
            scope="install",
            strength=strength,
            type="metadata",
            where=f"{', '.join(filter(None, [*project.packages, project.torch_part]))} on the package index: {what}",
            how=f"{COLLECTOR}; {how}",
            because=because,
            condition=condition,
            rows=tuple(rows),
        )
        if made.rows:
            found.append(made)

    def question(part: str) -> str:
        wanted = f"{name}-{part}"
        return wanted if wanted in project.questions else ""

    evaluated = "markers evaluated for each machine and Python; the sha256 is of the metadata"
    for component in dict.fromkeys(PACKAGES.values()):
        if component != name:
            fact(
                f"{component}-pin",
                (row for one in all_ for row in _pins(project, one, component)),
                "METADATA of wheels, PKG-INFO of sdists where there are none (Requires-Dist)",
                f"the metadata of {shown} asks for {component} {{row.{component}}}",
                evaluated,
                kind="limits" if component in LIMITED else "requires",
                question=question(component),
            )
    fact(
        "python-tags",
        (row for one in all_ for row in _pythons(name, one)),
        "tags of wheels; Requires-Python where a wheel is for any Python or an sdist can be built",
        f"{shown} cannot be installed for Python {{python}}",
        "tags of Linux wheels, Requires-Python",
        question=question("python"),
    )
    fact(
        "python-wheels",
        (row for one in all_ for row in _wheels(name, one)),
        "tags of wheels",
        f"there is no wheel of {shown} for Python {{python}}, so it would be compiled",
        "tags of the Linux wheels of releases that have an sdist too",
        strength="warn",
    )
    fact(
        "wheel-machine",
        (row for one in all_ for row in _machines(name, one)),
        "platform tags of wheels",
        f"there is no wheel of {shown} for {{arch}}",
        "platform tags of the Linux wheels",
        strength="warn",
    )
    fact(
        "withdrawn",
        (DerivedRow({}, {name: f"=={one.release.version}"}) for one in all_ if one.release.yanked),
        "yanked files (PEP 592)",
        f"all files of {shown} are yanked: upstream withdrew it",
        "data-yanked on the index page",
        kind="forbids",
        strength="warn",
    )
    if name == "transformer-engine":
        fact(
            "core-wheel",
            (row for one in all_ for row in _cores(one)),
            "METADATA of transformer-engine (Requires-Dist and extras)",
            f"{shown} has no core wheel for torch's CUDA {{torch-cuda}}",
            "transformer-engine-cuXX that the selector wheel asks for, with any extra; the sha256 is of METADATA",
            strength="conditional",
            condition="Transformer Engine is compiled from source for CUDA {torch-cuda}, core and torch part",
        )
    values = newest_first(one.release.version for one in all_)
    return Derived({name: {"values": values}}, {}, tuple(found))


def _pins(project: Project, one: Known, component: str) -> list[DerivedRow]:
    """What the release asks of one component, by machine and Python where that differs."""
    named = re.compile(rf"(?i)({_pattern(component).replace('-', '[-_.]')})\b")
    lines = (line for metadata in (*one.metadata.values(), one.torch_part) if metadata for line in metadata.requires)
    if not any(named.match(line) for line in lines):  # markers, which cost far more to read, need not be looked at
        return []

    def asked(cell: Cell) -> tuple[Mapping[str, Node] | None, str]:
        _, metadata = one.asks(cell)
        if component == "torch" and one.torch_part:
            metadata = one.torch_part
        for name, requirement in needs(metadata, *cell).items():
            if re.fullmatch(_pattern(component), name):
                return {component: constraint(requirement.specifier, labels=component == "torch")}, metadata.sha256
        return None, metadata.sha256

    everywhere = {cell: asked(cell) for cell in _places(one)}
    when: dict[str, Node] = {project.component: f"=={one.release.version}"}
    return rows(
        when,
        {cell: then for cell, (then, _) in everywhere.items()},
        {cell: sha256 for cell, (_, sha256) in everywhere.items()},
    )


def _pattern(component: str) -> str:
    return next(pattern for pattern, name in PACKAGES.items() if name == component)


def _places(one: Known) -> list[Cell]:
    """Where a release can be installed: where it has wheels, and everywhere when it has an sdist. One Python stands for
    all where there are only sdists, as those are the same for all."""
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


def _pythons(name: str, one: Known) -> list[DerivedRow]:
    when: dict[str, Node] = {name: f"=={one.release.version}"}
    note = digest(metadata.sha256 for metadata in one.metadata.values())
    tags = {python for _, python in one.release.wheels}
    if one.release.sdist or tags == {"any"}:
        wanted = constraint(specifiers(one.requires_python))
        return [DerivedRow(when, {"python": wanted if wanted != "*" else "3"}, note)]
    return _by_arch(when, one.cells, note)


def _wheels(name: str, one: Known) -> list[DerivedRow]:
    tags = {python for _, python in one.release.wheels}
    if not one.release.sdist or not tags or tags == {"any"}:
        return []
    note = digest(metadata.sha256 for metadata in one.metadata.values())
    return _by_arch({name: f"=={one.release.version}"}, one.cells, note)


def _by_arch(when: Mapping[str, Node], found: Mapping[Cell, Build], note: str) -> list[DerivedRow]:
    lists = {arch: oldest_first(python for other, python in found if other == arch) for arch, _ in sorted(found)}
    if len({tuple(pythons) for pythons in lists.values()}) == 1:
        return [DerivedRow(when, {"python": next(iter(lists.values()))}, note)]
    return [DerivedRow({**when, "arch": arch}, {"python": pythons}, note) for arch, pythons in lists.items()]


def _machines(name: str, one: Known) -> list[DerivedRow]:
    archs = sorted({arch for arch, _ in one.release.wheels})
    if not archs or len(archs) == len(MACHINES):
        return []
    return [DerivedRow({name: f"=={one.release.version}"}, {"arch": archs[0]})]


def _cores(one: Known) -> list[DerivedRow]:
    metadata = next(iter(one.metadata.values()))
    majors = {match[1] for line in metadata.requires if (match := re.match(r"transformer[-_]engine[-_]cu(\d+)", line))}
    if not majors:
        return []
    wanted: list[Node] = [*sorted(majors)]
    when: dict[str, Node] = {"transformer-engine": f"=={one.release.version}"}
    return [DerivedRow(when, {"torch-cuda": wanted if len(wanted) > 1 else wanted[0]}, digest([metadata.sha256]))]
