"""facts/derived/torchvision.yaml, vllm.yaml and others: which versions there are on the package index, for which
Pythons and machines, and which versions of other components their metadata requires.

METADATA of every wheel is read, because wheels of one release differ (torchvision pins torch on x86_64 and not on
aarch64 up to 0.14). Of releases without wheels PKG-INFO of the sdist is read, which may omit what the build requires
in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envbuild.matrix.collect.fact_writer import Context, Derived, DerivedFact, DerivedRow, FlowNode
from envbuild.matrix.collect.pin_facts import COLLECTOR, make_facts
from envbuild.matrix.collect.pin_rows import Project, ReleaseMetadata
from envbuild.matrix.collect.remote_wheel import Metadata
from envbuild.matrix.facts.index_releases import Release, list_releases
from envbuild.matrix.facts.version import newest_first
from envbuild.net.python_index import IndexFile

Releases = Mapping[str, Mapping[str, Release]]  # package → version → release

PROJECTS = (
    Project("torchvision", ("torchvision",), "0.11", ("torchvision-torch", "torchvision-python")),
    Project("torchaudio", ("torchaudio",), "0.10", ("torchaudio-torch", "torchaudio-python")),
    Project("numpy", ("numpy",), "1.19", ("numpy-python",)),
    Project("xformers", ("xformers",), "0.0.16", ("xformers-torch", "xformers-python")),
    Project("vllm", ("vllm",), "0.2", ("vllm-torch", "vllm-python")),
    Project("triton", ("triton",), "2.0"),
    Project("deepspeed", ("deepspeed",), "0.3"),
    Project("transformers", ("transformers",), "4.0"),
    Project("tokenizers", ("tokenizers",), "0.9"),
    Project("huggingface-hub", ("huggingface-hub",), "0.1"),
    Project("pydantic", ("pydantic",), "1.8"),
    Project("setuptools", ("setuptools",), "59"),  # 59.6.0 is the last for Python 3.6
    Project("flash-attn", ("flash-attn",), "0.2"),
    Project("transformer-engine", ("transformer-engine",), "1.9", torch_part="transformer-engine-torch"),
    Project("nccl", ("nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13"), read=False),
    Project("cudnn", ("nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13"), read=False),
    Project("nvshmem", ("nvidia-nvshmem-cu12", "nvidia-nvshmem-cu13"), read=False, suffixed=True),
    Project("ucx", ("libucx-cu12", "libucx-cu13"), read=False),
)


def collect(context: Context) -> dict[str, Derived]:
    """Return the files of all projects. Raise InputError."""
    found = {
        package: list_releases(context.index, package, project.oldest, yanked=True)
        for project in PROJECTS
        for package in project_packages(project)
    }
    wanted = {
        file.name: file
        for project in PROJECTS
        if project.read
        for package in project_packages(project)
        for release in found[package].values()
        for file in metadata_files(release)
    }
    metadata = dict(
        context.each(
            "pins",
            "reading metadata of packages around torch",
            lambda file: (file.name, context.wheels.metadata(file)),
            list(wanted.values()),
        )
    )
    return {
        project.component: read_facts(project, found, metadata) if project.read else release_facts(project, found)
        for project in PROJECTS
    }


def project_packages(project: Project) -> list[str]:
    """Return the packages of a project, with the one that holds its part for torch."""
    return [*project.packages, *filter(None, [project.torch_part])]


def project_releases(project: Project, found: Releases) -> dict[str, Release]:
    """Return version → release; of a version in several packages, that of the first."""
    return {number: release for package in reversed(project.packages) for number, release in found[package].items()}


def release_facts(project: Project, found: Releases) -> Derived:
    """Return the file of a project whose metadata is not read."""
    own = project_releases(project, found)
    usable = [number for number, release in own.items() if not release.yanked and release.wheels]
    values = {project.component: {"values": newest_first(usable)}}
    return Derived(values, {}, suffixed_facts(project, found) if project.suffixed else ())


def read_facts(project: Project, found: Releases, metadata: Mapping[str, Metadata]) -> Derived:
    """Return the file of a project from the metadata of its files (name → metadata)."""
    parts = found.get(project.torch_part, {})
    known = []
    for release in project_releases(project, found).values():
        part = next((metadata[file.name] for file in metadata_files(parts.get(release.version))), None)
        own_metadata = {file.name: metadata[file.name] for file in metadata_files(release)}
        known.append(ReleaseMetadata.of(release, own_metadata, part))
    return make_facts(project, known)


def suffixed_facts(project: Project, found: Releases) -> tuple[DerivedFact, ...]:
    """Return the facts of the CUDA versions and machines with wheels, for a component with a package for each CUDA."""
    name = project.component
    majors: dict[str, list[str]] = {}
    machines: dict[str, list[DerivedRow]] = {}
    for package in project.packages:
        major = package.rpartition("-cu")[2]
        for number, release in found[package].items():
            if release.wheels and not release.yanked:
                majors.setdefault(number, []).append(major)
                archs: list[FlowNode] = [*sorted({arch for arch, _ in release.wheels})]
                when: dict[str, FlowNode] = {name: f"=={number}", "cuda": ["-", major]}
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
    """Return one row without a condition on CUDA where all rows are equal."""
    if len({str(row.then) for row in found}) > 1:
        return list(found)
    return [DerivedRow({key: value for key, value in found[0].when.items() if key != "cuda"}, found[0].then)]


def metadata_files(release: Release | None) -> list[IndexFile]:
    """Return the files of a release whose metadata counts: its wheels, else its sdist."""
    if release is None:
        return []
    return [build.file for build in release.builds()] or ([release.sdist] if release.sdist else [])
