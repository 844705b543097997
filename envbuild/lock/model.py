"""A lock: every input of one image by its digest, and what each unit gets of them.

File names are the keys of three tables (debian, python, sources); units list file names. An `archive` is a Debian
archive, suite and component (``debian:trixie/main``, ``debian-security:trixie-security/main``); `path` is the path
below that archive's root.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from envbuild.lock.unit_names import in_image


@dataclass(frozen=True, slots=True)
class DebianFile:
    """A .deb: `name` and `version` as in its control file (with the epoch), `file` its name in a flat repository."""

    file: str
    name: str
    version: str
    archive: str
    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PythonFile:
    """A wheel or sdist of the package index."""

    file: str
    name: str
    version: str
    size: int
    sha256: str
    origin: str = ""  # pip:NAME of a vendor's index; empty: the package index


@dataclass(frozen=True, slots=True)
class SourceFile:
    """An archive by origin (``github:openucx/ucx@v1.20.1``), or a commit (``github:openucx/ucx@<40 hex digits>``, with
    `git`), whose tarball envbuild makes itself. `submodules`: path → the commit there (``github:NVIDIA/cutlass@…``).
    """

    file: str
    origin: str
    sha256: str
    size: int = 0
    git: bool = False
    submodules: Mapping[str, str] = field(default_factory=dict)


class VenvRule(StrEnum):
    """Rule for a venv that a base image has at the place of envbuild's own."""

    NONE = ""  # it has none
    EXTENDED = "extended"  # of the same Python: packages are added, and replaced where another version is required
    REPLACED = "replaced"  # of another Python, or incomplete: removed


@dataclass(frozen=True, slots=True)
class BaseImage:
    """The base image: `reference` as in the spec, `digest` of its manifest,
    `config` and `layers` (bottom first: sha256, bytes, media type) as it names them, `python` the packages (name →
    version) that its own interpreter sees, or the venv that is extended, `env` its environment, `venv` what becomes of
    its venv."""

    reference: str
    digest: str
    config: str
    layers: tuple[tuple[str, int, str], ...]
    distribution: str
    python: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    venv: VenvRule = VenvRule.NONE


@dataclass(frozen=True, slots=True)
class UnitLock:
    """File names that one unit gets, sorted. `requested` are the Debian packages that were requested by name,
    `replaced` those that others depend on and that something else replaces (``libucx0=1.20.1+envbuild``)."""

    debian: tuple[str, ...] = ()
    requested: tuple[str, ...] = ()
    essential: tuple[str, ...] = ()  # base only: file names of the packages that are unpacked first
    python: tuple[str, ...] = ()
    sdists: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lock:
    """All inputs of one image. `epoch` is SOURCE_DATE_EPOCH in seconds, at least as new as the newest input."""

    image: str
    inputs: str  # LockRequest.digest()
    base: str
    arch: str
    python: str
    epoch: int
    tools: Mapping[str, str]  # envbuild, hpccm, uv → version
    versions: Mapping[str, str]  # component → version, for users and for verify
    debian: Mapping[str, DebianFile]
    python_files: Mapping[str, PythonFile]
    sources: Mapping[str, SourceFile]
    units: Mapping[str, UnitLock]
    waivers: tuple[Mapping[str, str], ...] = field(default=())
    chosen: Mapping[str, str] = field(default_factory=dict)  # component → version that resolve picked for the spec
    # component → locked version, of all that the matrix knows
    settled: Mapping[str, str] = field(default_factory=dict)  # prose: keep
    facts: tuple[str, ...] = ()  # ids of the facts that this set of versions rests on, as of the day of the lock
    distribution: str = ""  # what the base is made of (debian:13)
    base_image: BaseImage | None = None  # None: the base is made from the distribution's packages
    releases: Mapping[str, str] = field(default_factory=dict)  # archive → date of its Release file (RFC 3339, UTC)

    def image_units(self) -> tuple[UnitLock, ...]:
        """Return the units whose files become part of the image, without those that only builds use."""
        return tuple(unit for name, unit in self.units.items() if in_image(name))

    def sdists(self) -> frozenset[str]:
        """Return the file names of the source distributions, which reach the image as compiled wheels."""
        return frozenset(file for unit in self.units.values() for file in unit.sdists)

    def image_python(self) -> frozenset[str]:
        """Return the names of the Python files that the image holds, source distributions among them."""
        return self.sdists().union(*(unit.python for unit in self.image_units()))


def lock_digest(lock: Lock) -> str:
    """Return ``sha256:<hex>`` of a lock's content, however its file is laid out.

    It names artifacts and is part of evidence. The dates of archives are left out: no image depends on them.
    """
    content = dataclasses.asdict(lock)
    del content["releases"]
    if lock.base_image and not lock.base_image.venv:  # a field that came later: older artifacts keep their names
        del content["base_image"]["venv"]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
