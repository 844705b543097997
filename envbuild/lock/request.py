"""What has to be locked: a pure function of the resolution gives it, and its digest says whether a lock is still the
right one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from envbuild.recipe import AptRepository, Archive, Git, PythonIndex


@dataclass(frozen=True, slots=True)
class UnitRequest:
    """Inputs that one unit asks for: Debian package names, Python requirements, sdists to compile, archives, commits;
    `gives`: packages (``apex==0.1``) that it compiles from them. `replaces`: Debian packages (``libucx0=1.20.1``) that
    something else in the image takes the place of; `devel`: Python requirements of what only builds need, in versions
    that fit the image's."""

    debian: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    sdists: tuple[str, ...] = ()
    archives: tuple[Archive, ...] = ()
    git: tuple[Git, ...] = ()
    gives: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    devel: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LockRequest:
    """All that a lock answers.

    `units` are in build order: ``base`` first, then ``debian`` (run-time packages), ``venv`` (all run-time Python
    requirements, resolved together), ``venv-core`` and ``venv-toolkit`` (the parts of them that form the venv's lower
    units, the second a part of the first), then one ``build-NAME`` for each compiling recipe. The Debian packages of
    every unit but the base are resolved on top of the base's; those of build units too.
    """

    image: str
    base: str  # debian:13, or the reference of an image
    distribution: str  # debian:13; what a base image is made of
    arch: str  # amd64 | arm64 (Debian's and OCI's words)
    python: str  # 3.13
    units: dict[str, UnitRequest]
    repositories: tuple[AptRepository, ...] = ()  # beside the distribution's own archives, for every unit but the base
    indexes: tuple[PythonIndex, ...] = ()
    promised: tuple[tuple[str, str], ...] = ()  # (recipe, path that the base image must hold)
    # what else, when changed, must make the lock outdated (versions, waivers)
    spec: Mapping[str, object] = field(default_factory=dict)
    # layer → its place in the spec, for messages only; under `envbuild.bases.PLACE` that of the base
    where: Mapping[str, str] = field(default_factory=dict)
    # Debian package of the unit ``debian`` → a layer that asks for it, for messages only
    askers: Mapping[str, str] = field(default_factory=dict)

    def place(self, unit: str) -> str:
        """Where the spec asks for what a unit compiles; empty for the others, which many layers ask for together."""
        layer = unit.removeprefix("build-")
        return self.where.get(layer, "") if layer != unit else ""

    def places(self) -> dict[str, str]:
        """File name of a source → where the spec asks for it."""
        found: dict[str, str] = {}
        for name, unit in self.units.items():
            files = [*(source.file for source in unit.archives), *(source.file for source in unit.git)]
            found |= dict.fromkeys(files if self.place(name) else (), self.place(name))
        return found

    def digest(self) -> str:
        """``sha256:<hex>`` of everything above. What is empty does not count, so that a kind of input that a later
        envbuild knows leaves the locks of images without it as they are."""
        text = json.dumps(_filled(asdict(replace(self, where={}, askers={}))), sort_keys=True, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _filled(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: filled for key, item in value.items() if (filled := _filled(item)) not in ({}, [], "", None)}
    if isinstance(value, (list, tuple)):
        return [_filled(item) for item in value]
    return value
