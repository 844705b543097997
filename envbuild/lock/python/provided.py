"""Python packages of an image that no index provides: those that its builds compile, and those of its base image.

They are part of the resolution, and are not installed from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.core.errors import ConflictError, SpecError
from envbuild.lock.model import PythonFile
from envbuild.lock.python.requirements import BUILD_TOOLS
from envbuild.lock.request import UnitRequest


@dataclass(frozen=True, slots=True)
class Provided:
    """Those packages, name → version, for Python `python` on `machine`: the packages that the build of each unit makes
    (`made`), those of all builds (`compiled`), and those that the base image has and no build makes (`present`)."""

    made: Mapping[str, Mapping[str, str]]
    compiled: Mapping[str, str]
    present: Mapping[str, str]
    python: str
    machine: str

    @classmethod
    def of(
        cls,
        made: Mapping[str, Mapping[str, str]],
        assumed: Mapping[str, str],
        present: Mapping[str, str],
        python: str,
        machine: str,
    ) -> Provided:
        """Group them by their source. `assumed`: made by builds whose sdist is not available now."""
        compiled = {**assumed, **{name: version for found in made.values() for name, version in found.items()}}
        others = {name: version for name, version in normalize_versions(present).items() if name not in compiled}
        return cls(made, compiled, others, python, machine)

    def to_image(self, requirements: Iterable[str]) -> dict[str, str]:
        """Return those that the image has without an index, given its run-time `requirements`."""
        # A compiled package reaches the image as a wheel of its own, not from the index.
        return {**accepted_packages(self.present, requirements, self.python, self.machine), **self.compiled}

    def to_build(self, unit: str, requirements: Iterable[str], shipped: Mapping[str, str]) -> dict[str, str]:
        """Return those that the build of a unit has below it. `shipped`: the packages of the venv that replace them."""
        usable = accepted_packages(self.present, requirements, self.python, self.machine)
        below = {
            name: version
            for name, version in self.present.items()
            if name not in shipped and (name in usable or name not in BUILD_TOOLS)
        }
        # An index has another build of another unit's package: the build gets this one, or reports it as missing.
        return below | {name: version for name, version in self.compiled.items() if name not in self.made[unit]}


def compiled_packages(
    units: Mapping[str, UnitRequest], sdists: Mapping[str, Iterable[PythonFile]]
) -> dict[str, dict[str, str]]:
    """Return unit → (name → version) of the packages that its build makes: from sdists, and those that its recipe
    declares (``apex==0.1``).

    Raises SpecError for one without a version, ConflictError when two builds make the same package in different
    versions.
    """
    found: dict[str, str] = {}
    made: dict[str, dict[str, str]] = {}
    for unit, request in units.items():
        made[unit] = {str(canonicalize_name(file.name)): file.version for file in sdists[unit]}
        made[unit] |= [parse_exact(text, unit) for text in request.gives]
        for name, version in made[unit].items():
            if found.setdefault(name, version) != version:
                raise ConflictError(
                    f"{name} is compiled twice, as {found[name]} and as {version} (by {unit})",
                    "keep one of the recipes",
                )
    return made


def parse_exact(text: str, unit: str) -> tuple[str, str]:
    """Parse ``name==version`` into (name, version). Raises SpecError."""
    try:
        wanted = Requirement(text)
        clauses = [(clause.operator, clause.version) for clause in wanted.specifier]
        if len(clauses) == 1 and clauses[0][0] == "==" and not (wanted.extras or wanted.marker or wanted.url):
            return str(canonicalize_name(wanted.name)), str(Version(clauses[0][1]))
    except ValueError:  # also a number that Python does not read
        pass
    raise SpecError(
        f"'{text}' of {unit} is not a package with a version", "write name and version in the recipe: apex==0.1"
    )


def normalize_versions(packages: Mapping[str, str]) -> dict[str, str]:
    """Return `packages` by their normalized names; those with an invalid name or version (PEP 508,
    PEP 440) are left out: a lock may have them from an older envbuild."""
    found = {}
    for name, version in packages.items():
        with suppress(ValueError):  # also a number that Python does not read
            found[str(canonicalize_name(name, validate=True))] = str(Version(version))
    return found


def accepted_packages(
    present: Mapping[str, str], requirements: Iterable[str], python: str, machine: str
) -> dict[str, str]:
    """Return those of `present` (name → version) that satisfy all `requirements` on this Python and machine; a
    requirement with extras is not satisfied, because the dependencies of the extras may be missing.

    Raises SpecError for a marker that cannot be evaluated."""
    full = python if python.count(".") > 1 else f"{python}.0"
    markers = {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": full,
        "python_version": ".".join(full.split(".")[:2]),
        "sys_platform": "linux",
        "extra": "",
    }
    found = dict(present)
    for text in requirements:
        wanted = Requirement(text)
        name = str(canonicalize_name(wanted.name))
        try:
            if name not in found or (wanted.marker and not wanted.marker.evaluate(markers)):
                continue
            if wanted.extras or not wanted.specifier.contains(found[name], prereleases=True):
                del found[name]
        except (ValueError, KeyError) as error:  # as of ``os_name ~= 'x'``, ``'a' == 'b'``
            raise SpecError(f"the requirement '{text}' cannot be evaluated: {error}", "correct its marker") from None
    return found
