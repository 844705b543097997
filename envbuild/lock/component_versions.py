"""The versions of an image's components as they were locked, and their check against the versions in its layers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from packaging.specifiers import SpecifierSet

from envbuild.core.errors import ConflictError, Finding
from envbuild.lock.model import Lock
from envbuild.lock.python.provided import parse_exact
from envbuild.lock.request import LockRequest, UnitRequest
from envbuild.lock.unit_names import VENV, build_unit, built_recipe

INDEX, IMAGE = "the package index", "the base image"
TAG = re.compile(r"(?:[A-Za-z_-]*[-_])?v?(?P<version>\d+(?:\.\d+)+[\w.+-]*)")


def component_versions(request: LockRequest, lock: Lock) -> dict[str, str]:
    """Return component → version of its package (`Recipe.package`) as it was locked.

    A component without one has the version of the release that its recipe compiles: of upstream's tag, else of the
    layer.
    """
    components, layers = request.spec.get("components"), request.spec.get("layers")
    found = installed_packages(request, lock)
    named = components.items() if isinstance(components, Mapping) else ()
    versions = {str(name): found[package][0] for name, package in named if package in found}
    for unit in request.units:
        component = built_recipe(unit)
        if not component or not has_own_sources(request, component):
            continue
        layer = layers.get(component, {}) if isinstance(layers, Mapping) else {}
        requested, release = str(layer.get("version") or ""), tag_version(request.units[unit], component)
        version = release if release and (not requested or matches_version(requested, release)) else requested
        if version:
            versions.setdefault(component, version)
    return versions


def installed_packages(request: LockRequest, lock: Lock) -> dict[str, tuple[str, str]]:
    """Return package → (version, where it is from), of all packages of an image."""
    found = {name: (version, IMAGE) for name, version in (lock.base_image.python if lock.base_image else {}).items()}
    found |= {file.name: (file.version, file.archive) for file in lock.debian.values()}
    found |= {file.name: (file.version, file.origin or INDEX) for file in lock.python_files.values()}
    for unit, requested in request.units.items():
        found |= {name: (version, unit) for name, version in (parse_exact(text, unit) for text in requested.gives)}
    return found


def shipped_python(request: LockRequest, lock: Lock) -> dict[str, str]:
    """Return Python package → version, of those that an image has when it runs.

    They are the base image's, overridden by the venv's from indexes, those compiled from sdists, and those of builds.
    """
    found = dict(lock.base_image.python) if lock.base_image else {}
    for name, unit in lock.units.items():
        files = [lock.python_files[file] for file in (unit.python if name == VENV else unit.sdists)]
        found |= {file.name: file.version for file in files}
    return found | dict(
        parse_exact(text, unit) for unit, requested in request.units.items() for text in requested.gives
    )


def has_own_sources(request: LockRequest, component: str) -> bool:
    """Return whether a component is compiled from its recipe's own sources, so that no package has its version."""
    unit = request.units.get(build_unit(component), UnitRequest())
    return bool(unit.archives or unit.git)


def tag_version(unit: UnitRequest, component: str) -> str:
    """Return the version in the tag (``v1.20.1``) of the source with the component's name; empty without one."""
    tags = [source.tag for source in unit.git if source.name == component]
    tags += [archive.origin.rpartition("@")[2] for archive in unit.archives if archive.name == component]
    found = next((match for tag in tags if (match := TAG.fullmatch(tag))), None)
    return found["version"] if found else ""


def check_versions(request: LockRequest, lock: Lock) -> None:
    """Raise ConflictError with every component that was locked in another version than its layer requires.

    A recipe may take its package from where there is one version only (Debian, a base image), and so cannot follow its
    option.
    """
    components, layers = request.spec.get("components"), request.spec.get("layers")
    if not isinstance(components, Mapping) or not isinstance(layers, Mapping):
        return
    found, debs = installed_packages(request, lock), {file.name for file in lock.debian.values()}
    findings = []
    for name, package in components.items():
        requested = str(layers.get(name, {}).get("version") or "")
        has, where = found.get(package, ("", ""))
        python = package not in debs or where in (INDEX, IMAGE)
        # A source chosen by the option has that version, or a name of its own ("may24").
        if not requested or has_own_sources(request, str(name)) or matches_version(requested, has, python=python):
            continue
        if has:
            because = f"{where} has {has} and the recipe takes it from there"
            short = re.match(r"(?:\d+:)?(\d+(?:\.\d+)?)", has)
            hint = f'leave the version of {name} out, or write version: "{short[1] if short else has}"'
        elif lock.base_image:
            continue  # no package has that version; `verify` checks it in the image
        else:
            because = f"the recipe installs no package '{package}', whose version that would be"
            hint = f"leave the version of {name} out, or correct 'package' in the recipe"
        findings.append(Finding(f"{name} {requested} is not available, because {because}", hint=hint))
    if findings:
        raise ConflictError.of(findings)


def matches_version(requested: str, locked: str, *, python: bool = False) -> bool:
    """Return whether `locked` is the version `requested` or one of its line.

    ``1.18`` matches ``1.18.1+ds-2`` and ``1:1.18-1``, not ``1.180``; a `python` version also matches its other
    spellings (``4.1.0`` matches ``4.1``, PEP 440).
    """
    if re.match(rf"(\d+:)?{re.escape(requested)}(?!\d)", locked):
        return True
    try:
        return python and SpecifierSet(f"=={requested}").contains(locked, prereleases=True)
    except ValueError:  # also a number that Python does not read
        return False
