"""The lock request: everything that has to be locked, a pure function of the resolution. A lock is current if it has
the digest of the request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from envbuild.lock.unit_names import BASE, DEBIAN, VENV, VENV_CORE, VENV_TOOLKIT, build_unit, built_recipe
from envbuild.spec.local_wheels import LocalWheel
from envbuild.spec.recipe import AptRepository, Archive, Git, GitProject, PythonIndex
from envbuild.spec.recipe_calls import call_recipe
from envbuild.spec.resolve import Resolution, explicit_options

if TYPE_CHECKING:
    from envbuild.spec.dev_project import DevContent

# Every image has an interpreter for its venv and the certificates that downloads of a job need. No pip: envbuild
# installs with uv.
BASE_PACKAGES = ("ca-certificates", "python3")
NO_INPUTS = frozenset({"env"})  # keys of `LockRequest.spec` that decide no input


@dataclass(frozen=True, slots=True)
class UnitRequest:
    """The inputs that one unit requires: Debian package names, Python requirements, sdists to compile, archives,
    commits.

    `gives`: packages (``apex==0.1``) that it compiles from them
    replaces: Debian packages (``libucx0=1.20.1``) that something else in the image replaces
    devel: Python requirements of what only builds need, in versions that are consistent with the image's
    projects: Python projects in repositories, of which it compiles wheels
    wheels: wheels of the project
    """

    debian: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    sdists: tuple[str, ...] = ()
    archives: tuple[Archive, ...] = ()
    git: tuple[Git, ...] = ()
    gives: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    devel: tuple[str, ...] = ()
    projects: tuple[GitProject, ...] = ()
    wheels: tuple[LocalWheel, ...] = ()

    def source_files(self) -> tuple[str, ...]:
        """Return the names of the archives and tarballs that it gets, sorted."""
        sources: list[Archive | Git | GitProject] = [*self.archives, *self.git, *self.projects]
        return tuple(sorted({source.file for source in sources}))


@dataclass(frozen=True, slots=True)
class LockRequest:
    """All that a lock answers.

    `units` are in build order: ``base`` first, then ``debian`` (run-time packages), ``venv`` (all run-time Python
    requirements, resolved together), ``venv-core`` and ``venv-toolkit`` (the parts of them that form the venv's lower
    units, the second a part of the first), then one ``build-NAME`` for each compiling recipe. The Debian packages of
    every unit but the base are resolved on top of the base's; those of build units too.
    """

    image: str
    base: str  # debian:13, or the reference or path of an image
    distribution: str  # debian:13; what a base image is made of
    arch: str  # amd64 | arm64 (Debian's and OCI's words)
    python: str  # 3.13
    units: dict[str, UnitRequest]
    repositories: tuple[AptRepository, ...] = ()  # beside the distribution's own archives, for every unit but the base
    indexes: tuple[PythonIndex, ...] = ()
    promised: tuple[tuple[str, str], ...] = ()  # (recipe, path that the base image must hold)
    # what else, when changed, must make the lock outdated (versions, waivers), and the image's environment
    spec: Mapping[str, object] = field(default_factory=dict)
    # layer → its place in the spec, for messages only; under `envbuild.core.distributions.PLACE` that of the base
    where: Mapping[str, str] = field(default_factory=dict)
    # Debian package of the unit ``debian`` → a layer that requires it, for messages only
    askers: Mapping[str, str] = field(default_factory=dict)
    prefixes: tuple[tuple[str, str], ...] = ()  # (recipe, folder that it compiles into, and the base must not have)
    contents: tuple[DevContent, ...] = ()  # of project folders: inputs of units that no lock has
    folder: str = ""  # where a relative path of `base` begins: the folder of the spec

    def unit_place(self, unit: str) -> str:
        """Return the place in the spec that requires what a unit compiles; empty if several layers share it."""
        layer = built_recipe(unit)
        return self.where.get(layer, "") if layer else ""

    def source_places(self) -> dict[str, str]:
        """Return file name of a source → the place in the spec that requires it."""
        found: dict[str, str] = {}
        for name, unit in self.units.items():
            found |= dict.fromkeys(unit.source_files() if self.unit_place(name) else (), self.unit_place(name))
        return found

    def wheel_places(self) -> dict[str, str]:
        """Return file name of a wheel of the project → the place in the spec that requires it."""
        return {wheel.file: self.where.get(wheel.layer, "") for unit in self.units.values() for wheel in unit.wheels}

    def digest(self) -> str:
        """Return ``sha256:<hex>`` of everything above that decides an input.

        Empty values do not count. So a kind of input that a later envbuild adds does not change the digest of images
        without it, and their locks remain current. Reasons do not count either, nor does the environment of the image:
        no input depends on it.
        """
        return self._digest({key: value for key, value in self.spec.items() if key not in NO_INPUTS})

    def is_answered_by(self, inputs: str) -> bool:
        """Return whether a lock with these `inputs` is current. An older envbuild counted the image's environment."""
        return inputs == self.digest() or inputs == self._digest(self.spec)

    def _digest(self, spec: Mapping[str, object]) -> str:
        units = {
            name: replace(
                unit, git=tuple(replace(git, submodules=git.fetched_submodules, left_out="") for git in unit.git)
            )
            for name, unit in self.units.items()
        }
        values = asdict(replace(self, where={}, askers={}, prefixes=(), contents=(), folder="", units=units, spec=spec))
        text = json.dumps(_filled(values), sort_keys=True, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=8)  # several steps need that of the current image, and it calls every recipe
def lock_request(resolution: Resolution) -> LockRequest:
    """Return what has to be locked for an image: the inputs of each unit, and everything else that changes the image.

    Computed once for a resolution."""
    spec, target, runtime = resolution.spec, resolution.target, resolution.runtime
    toolkit = tuple(sorted(set(runtime.toolkit)))
    core = tuple(sorted({*runtime.core, *toolkit}))
    every = resolution.sources.values()
    promised = [
        (recipe.name, path)
        for recipe in resolution.recipes
        for path in call_recipe(recipe, "promised", tuple, resolution.env)
    ]
    units = {
        BASE: UnitRequest(debian=BASE_PACKAGES),
        DEBIAN: UnitRequest(
            debian=tuple(sorted(set(runtime.debian))),
            replaces=tuple(sorted(f"{name}={version}" for name, version in runtime.replaces.items())),
        ),
        VENV: UnitRequest(
            python=tuple(sorted({*runtime.python, *core, *_dev_requirements(resolution)})), wheels=resolution.wheels
        ),
        VENV_CORE: UnitRequest(python=core),
    }
    if toolkit:
        units[VENV_TOOLKIT] = UnitRequest(python=toolkit)
    for name in resolution.compiled:
        sources = resolution.sources[name]
        units[build_unit(name)] = UnitRequest(
            debian=tuple(sorted(set(sources.debian))),
            python=tuple(sorted(set(sources.python))),
            sdists=tuple(sorted(set(sources.sdists))),
            archives=sources.archives,
            git=sources.git,
            gives=tuple(sorted(set(sources.gives))),
            devel=tuple(sorted(set(sources.devel))),
            projects=sources.projects,
            replaces=tuple(sorted(f"{package}={version}" for package, version in sources.replaces.items())),
        )
    return LockRequest(
        image=spec.name,
        base=spec.base,
        distribution=spec.distribution,
        arch=target.arch,
        python=spec.python,
        units=units,
        repositories=tuple(dict.fromkeys(item for sources in every for item in sources.repositories)),
        indexes=tuple(dict.fromkeys(item for sources in every for item in sources.indexes)),
        promised=tuple(promised),
        spec={
            "target": {"name": target.name, "sm": target.sm, "cpu": target.cpu},
            "layers": {name: explicit_options(spec.recipes[name]) for name in resolution.order},
            "components": {recipe.name: recipe.package for recipe in resolution.recipes if recipe.package},
            "env": dict(runtime.env),
            "waivers": [{"fact": waiver.fact, "reason": waiver.reason} for waiver in resolution.waivers],
        },
        where=spec.where,
        askers={package: name for name in reversed(resolution.order) for package in resolution.runtimes[name].debian},
        prefixes=tuple((name, prefix) for name in resolution.compiled if (prefix := spec.recipes[name].prefix)),
        contents=resolution.contents,
        folder=str(spec.path.parent),
    )


def _dev_requirements(resolution: Resolution) -> tuple[str, ...]:
    if not resolution.spec.dev:
        return ()
    from envbuild.spec.dev_project import dev_requirements

    return dev_requirements(resolution.spec.dev)


def _filled(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: filled for key, item in value.items() if (filled := _filled(item)) not in ({}, [], "", None)}
    if isinstance(value, (list, tuple)):
        return [_filled(item) for item in value]
    return value
