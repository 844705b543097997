"""Slurm, pyxis and enroot of the cluster, and the options that they have. A site states them, or programs here do
(`envbuild.launch.client_queries`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import zip_longest

from envbuild.core.errors import SpecError
from envbuild.core.yaml_reader import short
from envbuild.net.slurm_site import Slurm

# Option of srun → the first release of pyxis that has it (its tags).
PYXIS_OPTIONS = {
    "--container-env": "0.15.0",
    "--no-container-mount-home": "0.3.0",
    "--container-remap-root": "0.4.0",
    "--no-container-remap-root": "0.4.0",
}
# Newest first: an option of `srun --help` → the release of pyxis that it came with.
EVIDENCE = {
    "--container-unshare": "0.24.0",
    "--container-entrypoint-log": "0.20.0",
    "--container-env": "0.15.0",
    "--container-readonly": "0.11.0",
    "--container-image": "0.4.0",
}
OLDEST_PYXIS = "0.11.0"  # where nothing is known: the oldest of a reference system is 0.11.1
DIGESTS = "4.0.0"  # enroot that pulls by digest, and by REGISTRY/PATH
DIGITS = 18  # of a part of a version that count: Python refuses numbers of thousands
GPU_OPTIONS = "19.05"  # Slurm that has --gpus-per-node; older ones have --gres alone


@dataclass(frozen=True, slots=True)
class Clients:
    """The known clients: `slurm` is merged from the site and this machine; `queries` are the commands that were run."""

    slurm: Slurm
    queries: tuple[str, ...] = ()
    without_pyxis: bool = False

    def has(self, option: str) -> bool:
        """Return whether pyxis has an option. An unknown release is taken for the oldest."""
        return not older(self.slurm.pyxis or OLDEST_PYXIS, PYXIS_OPTIONS[option])

    def has_gpu_options(self) -> bool:
        """Return whether sbatch has --gpus-per-node. An unknown release is taken for one that does."""
        return not (self.slurm.version and older(self.slurm.version, GPU_OPTIONS))

    def require_pyxis(self) -> None:
        """Raise SpecError if this machine's Slurm has no pyxis and the site states none."""
        if self.without_pyxis and not self.slurm.pyxis:
            raise SpecError(
                "Slurm here has no pyxis: srun --help lists no --container-image",
                hint="install pyxis, or write slurm: {pyxis: VERSION} into site.yaml for another cluster",
            )


def find_clients(stated: Slurm, query: Callable[..., str]) -> Clients:
    """Return the clients of the cluster. The programs of this machine are queried where the site states nothing.
    query: returns what a program prints, or nothing."""
    found = stated
    queries: list[str] = []
    without = False
    if not stated.version and (text := query("srun", "--version")):
        found, queries = replace(found, version=first_version(text)), [*queries, "srun --version"]
    if not stated.pyxis and (text := query("srun", "--help")):
        release = next((version for option, version in EVIDENCE.items() if option in text), "")
        found, queries, without = replace(found, pyxis=release), [*queries, "srun --help"], not release
    if stated.pmix is None and (text := query("srun", "--mpi=list")):
        plugins = tuple(dict.fromkeys(re.findall(r"\bpmix(?:_v[0-9]+)?\b", text)))
        found, queries = replace(found, pmix=plugins), [*queries, "srun --mpi=list"]
    if not stated.enroot and (text := query("enroot", "version")):
        found, queries = replace(found, enroot=first_version(text)), [*queries, "enroot version"]
    return Clients(found, tuple(queries), without)


def first_version(text: str) -> str:
    """Return the first version number in a text; empty if there is none."""
    found = re.search(r"[0-9]+(\.[0-9]+){1,3}", text)
    return found[0] if found else ""


def older(version: str, than: str) -> bool:
    """Return whether one version number is lower than another: 4.0 is not lower than 4.0.0."""
    pairs = [*zip_longest(_numbers(version), _numbers(than), fillvalue=0)]
    return [one for one, _ in pairs] < [other for _, other in pairs]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part[:DIGITS]) for part in re.findall(r"[0-9]+", version))


def check_partition(partition: str, query: Callable[..., str]) -> None:
    """Raise SpecError if Slurm on this machine has no such partition, or none that jobs get without naming one.
    Several partitions, with commas, are a choice that Slurm makes."""
    listed = query("sinfo", "--noheader", "--format=%P").split()
    names = [name.rstrip("*") for name in listed]
    if not names or any(not re.fullmatch(r"[\w.-]+\*?", name) for name in listed):  # an error text, or no Slurm
        return
    unknown = [name for name in partition.split(",") if name not in names] if partition else []
    if unknown:
        raise SpecError(
            f"this cluster has no partition '{short(unknown[0])}'",
            hint=f"its partitions are: {', '.join(names)}; write partition: NAME into site.yaml, or type --partition",
        )
    if not partition and not any(name.endswith("*") for name in listed):
        raise SpecError(
            "no partition is named, and this cluster has no default one",
            hint=f"write partition: {names[0]} into site.yaml, or type --partition; it has: {', '.join(names)}",
        )
