"""The Python half of a lock: one resolution for the run-time environment, one for each build.

The run-time packages (``venv``) are resolved together; builds are resolved separately, but use every package that both
have in the version that is shipped, so that a kernel is compiled against the torch of the image.

A base image contains packages of its own, which the venv can import. They are part of every resolution in their present
version and are not installed again. Where a requirement of the spec or of a recipe names a version that the image does
not have (or requires extras), the venv gets one that fits, which hides the image's; whether it is compatible with the
other packages of the image is not checked. A requirement of a build may replace only tools in this way: a kernel is
compiled against the packages of the image.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envbuild.core.errors import ConflictError, EnvbuildError, Finding, InputError, SpecError
from envbuild.lock.missing_inputs import combine_errors
from envbuild.lock.model import PythonFile, UnitLock
from envbuild.lock.python.choose_files import FileChooser
from envbuild.lock.python.kept_units import KeptUnits, query_of
from envbuild.lock.python.known_releases import KnownReleases
from envbuild.lock.python.pins import Pin
from envbuild.lock.python.provided import Provided, compiled_packages, parse_exact
from envbuild.lock.python.requirements import (
    BUILD_TOOLS,
    build_requirements,
    check_requirements,
    runtime_requirements,
    venv_parts,
)
from envbuild.lock.python.undeclared import conflict, unmet
from envbuild.lock.python.uv_resolver import Resolver
from envbuild.lock.request import UnitRequest
from envbuild.lock.unit_names import VENV, VENV_PARTS

FindConflicts = Callable[[Mapping[str, Sequence[str]]], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class PythonLock:
    """Unit → UnitLock with only `python` and `sdists` set, and all files by file name."""

    units: Mapping[str, UnitLock]
    files: Mapping[str, PythonFile]


@dataclass(slots=True)
class PythonResolution:
    """The resolution of the Python inputs of one lock.

    `previous`: unit → {name: version} of an earlier lock, used where possible.
    `present`: name → version of the packages of a base image.
    `lacking`: name → the reason why its dependencies are unknown now (its vendor's index has no place here); a unit
    that needs one waits for it, and `report` gets a message.
    `find_conflicts`: finds conflicts of the packages of the venv (name → names of those that require it).
    `before`: errors that are known already, raised with the others.
    `wheels`: unit → those of the project, which are installed as they are.
    `known`: the releases that the facts know, which are preferred to newer ones.
    `kept`: the packages of the earlier lock that need not be resolved again.
    `hold`: no package of `previous` may have another version.

    After an error, `found` returns the files that were chosen nevertheless.
    """

    resolver: Resolver
    choice: FileChooser
    previous: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    chosen: dict[tuple[str, str], PythonFile] = field(default_factory=dict)
    present: Mapping[str, str] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)
    report: Callable[[str], None] = lambda text: None
    find_conflicts: FindConflicts = lambda wheels: ()
    before: Sequence[EnvbuildError] = ()
    wheels: Mapping[str, Sequence[PythonFile]] = field(default_factory=dict)
    known: KnownReleases = field(default_factory=KnownReleases)
    kept: KeptUnits = field(default_factory=KeptUnits)
    hold: bool = False
    sdists: dict[str, list[PythonFile]] = field(default_factory=dict)
    errors: list[EnvbuildError] = field(default_factory=list)

    def lock(self, units: Mapping[str, UnitRequest]) -> PythonLock:
        """Resolve and choose. Raises SpecError, ConflictError, InputError, after everything that does not depend on
        a missing input is resolved and chosen."""
        for unit, request in units.items():
            check_requirements(unit, (*request.python, *request.devel, *request.sdists))
        self.errors = list(self.before)
        assumed = self.choose_sdists(units)
        provided = self.provided_packages(units, assumed)
        runtime = runtime_requirements(units)
        omit = provided.to_image(runtime)
        venv = self.resolve_venv(units, runtime, omit) if runtime else {}
        pins = {VENV: venv or {}, **self.resolve_rest(units, venv, provided, omit)}
        self.choose({(pin.name, pin.version): pin for found in pins.values() for pin in found.values()})
        if self.errors:
            raise combine_errors(self.errors)
        locked = {
            unit: UnitLock(
                python=tuple(
                    sorted(
                        [
                            *(self.chosen[pin.name, pin.version].file for pin in pins.get(unit, {}).values()),
                            *(wheel.file for wheel in self.wheels.get(unit, ())),
                        ]
                    )
                ),
                sdists=tuple(sorted(file.file for file in self.sdists.get(unit, ()))),
            )
            for unit in units
        }
        return PythonLock(locked, {file.file: file for file in self.found()})

    def choose_sdists(self, units: Mapping[str, UnitRequest]) -> dict[str, str]:
        """Fill `sdists`. Return name → version that is assumed of those that are not available."""
        self.sdists = {}
        assumed: dict[str, str] = {}
        for unit, request in units.items():
            for text in request.sdists:
                try:
                    self.sdists.setdefault(unit, []).append(self.choice.sdist(text, self.earlier(unit, text)))
                except (InputError, ConflictError) as error:
                    self.errors.append(error)
                    assumed |= self.assume_sdist(text)
        return assumed

    def provided_packages(self, units: Mapping[str, UnitRequest], assumed: Mapping[str, str]) -> Provided:
        """Return the packages that no index provides: those of builds, `assumed` ones too, and of the base image."""
        made = compiled_packages(units, {unit: self.sdists.get(unit, []) for unit in units})
        machine = self.resolver.uv.platform.partition("-")[0]
        return Provided.of(made, assumed, self.present, self.resolver.uv.python, machine)

    def resolve_venv(
        self, units: Mapping[str, UnitRequest], runtime: Sequence[str], omit: Mapping[str, str]
    ) -> dict[str, Pin] | None:
        """Return the packages that are shipped; None where that is unknown. Raises the findings of `find_conflicts`."""
        devel = [text for request in units.values() for text in request.devel]
        previous = self.previous.get(VENV, {})
        query = query_of(runtime, omit, devel)
        pins = self.kept.pins(VENV, query, previous, {})
        if pins is None:
            prefer = self.preferred_versions(runtime, devel, omit) if devel else previous
            pins = self.attempt(VENV, runtime, prefer=prefer, omit=omit)
            self.kept.record(VENV, query, pins or {})
        # before `choose`: an index without digests has files fetched to choose them
        if findings := tuple(self.find_conflicts({name: pin.users for name, pin in (pins or {}).items()})):
            raise combine_errors([*self.errors, ConflictError.of(findings)])
        return pins

    def resolve_rest(
        self,
        units: Mapping[str, UnitRequest],
        venv: Mapping[str, Pin] | None,
        provided: Provided,
        omit: Mapping[str, str],
    ) -> dict[str, dict[str, Pin]]:
        """Return unit → packages of the builds, and of the parts of the venv, in the versions that the `venv` has.
        Without those (None) the parts are left out, and a build that fails is not an error of its own."""
        blind = venv is None
        shipped = {name: pin.version for name, pin in (venv or {}).items()}
        builds = build_requirements(units)
        parts = {} if blind else venv_parts(units)
        requirements = {**builds, **parts}
        omitted = {
            unit: provided.to_build(unit, builds[unit], shipped) if unit in builds else omit for unit in requirements
        }
        with ThreadPoolExecutor(2) as pool:
            results = pool.map(
                lambda unit: self.resolve_separately(unit, requirements[unit], shipped, omitted[unit], blind=blind),
                requirements,
            )
            return {unit: found or {} for unit, found in zip(requirements, results, strict=True)}

    def preferred_versions(
        self, runtime: Sequence[str], devel: Sequence[str], omit: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the versions to prefer for the image: those in which its packages are compatible with the packages of
        the same product in its builds. Otherwise the image would get the newest CCCL, which NVSHMEM needs in any
        version, and nvcc comes with its own."""
        previous = self.previous.get(VENV, {})
        found = self.attempt(VENV, [*runtime, *devel], prefer=previous, omit=omit, blind=True)
        return {**previous, **{name: pin.version for name, pin in (found or {}).items()}}

    def resolve_separately(
        self,
        unit: str,
        requirements: Iterable[str],
        shipped: Mapping[str, str],
        omit: Mapping[str, str],
        *,
        blind: bool = False,
    ) -> dict[str, Pin] | None:
        """Resolve a build, or a part of the venv, in the shipped versions; `omit`: those that are present."""
        whole = unit in VENV_PARTS
        bound = {name: version for name, version in shipped.items() if whole or name not in BUILD_TOOLS}
        previous, query = self.previous.get(unit, {}), query_of(requirements, omit)
        if (kept := self.kept.pins(unit, query, previous, bound)) is not None:
            return kept
        found = self.attempt(
            unit,
            requirements,
            constraints=[f"{name}=={version}" for name, version in bound.items()],
            prefer={**shipped, **previous},
            omit=omit,
            blind=blind,
        )
        self.kept.record(unit, query, found or {})
        return found

    def attempt(
        self,
        unit: str,
        requirements: Iterable[str],
        *,
        constraints: Iterable[str] = (),
        prefer: Mapping[str, str] | None,
        omit: Mapping[str, str],
        blind: bool = False,
    ) -> dict[str, Pin] | None:
        """Return the result of `resolve`; None where it fails. Errors are raised at the end, except those of a `blind`
        unit, whose error follows from another one; a unit that waits for a missing package is reported."""
        named = {str(canonicalize_name(Requirement(text).name)) for text in requirements} - omit.keys()
        waits = sorted(named & self.lacking.keys())
        pins: dict[str, Pin] = {}
        if not waits:
            try:
                pins = self.resolve(unit, requirements, constraints=constraints, prefer=prefer, omit=omit)
            except (InputError, ConflictError, SpecError) as error:
                waits = sorted(name for name in self.lacking if names_package(name, error.message))
                if not waits:
                    self.errors += [] if blind else [error]
                    return None
            waits = waits or sorted(pins.keys() & self.lacking.keys())
        if waits:
            self.report(f"the Python packages of '{unit}' wait for {waits[0]} {self.lacking[waits[0]]}")
            return None
        return pins

    def earlier(self, unit: str, text: str) -> str | None:
        """Return the version of the sdist `text` in the earlier lock."""
        return self.previous.get(f"{unit} sdists", {}).get(str(canonicalize_name(Requirement(text).name)))

    def assume_sdist(self, text: str) -> dict[str, str]:
        """Return what is assumed of the sdist `text`, which is not available: its name and version where that is exact.
        Otherwise its version is unknown, and units that need it wait."""
        name = str(canonicalize_name(Requirement(text).name))
        try:
            return dict([parse_exact(text, name)])
        except SpecError:
            self.lacking[name] = "(its sdist)"
            return {}

    def found(self) -> list[PythonFile]:
        """Return every file that was chosen."""
        local = [file for found in self.wheels.values() for file in found]
        return [*self.chosen.values(), *local, *(file for found in self.sdists.values() for file in found)]

    def resolve(
        self,
        unit: str,
        requirements: Iterable[str],
        *,
        constraints: Iterable[str] = (),
        prefer: Mapping[str, str] | None,
        omit: Mapping[str, str],
    ) -> dict[str, Pin]:
        """Return the result of the resolver, in versions that the facts know where they fit; a conflict with a package
        of the base image gets a hint of its own."""

        before = self.previous.get(unit, {}) if self.hold else {}
        pinned = [f"{name}=={version}" for name, version in before.items() if name not in omit]
        fixed = list(dict.fromkeys([*constraints, *pinned]))

        def run(bounds: Iterable[str] = ()) -> dict[str, Pin]:
            limits = [*fixed, *bounds]
            pins = self.resolver.resolve(unit, requirements, constraints=limits, prefer=prefer, omit=omit)
            if not (rules := unmet(pins, omit)):
                return pins
            limits += [rule.older for rule in rules]
            try:
                return self.resolver.resolve(unit, requirements, constraints=limits, prefer=prefer, omit=omit)
            except ConflictError:
                raise conflict(rules[0], pins, omit) from None

        try:
            return self.known.prefer_known(run(), run)
        except ConflictError as error:
            named = {name: version for name, version in omit.items() if f"{name}==" in error.message}
            named = {name: version for name, version in sorted(named.items()) if name in self.present}
            if not named:
                raise
            packages = ", ".join(f"{name} {version}" for name, version in named.items())
            own = f"name another version of {next(iter(named))} under python-packages: the venv then has its own"
            raise ConflictError(
                f"{error.message}\nThe base image contains {packages}.", f"{error.hint}, or {own}"
            ) from None

    def choose(self, pins: Mapping[tuple[str, str], Pin]) -> None:
        """Fill `chosen` with the best wheel of every pin, `errors` with the errors of the others."""
        missing = [pin for key, pin in pins.items() if key not in self.chosen]

        def choose_wheel(pin: Pin) -> PythonFile | EnvbuildError:
            if kept := self.kept.file(pin, self.choice.origin_of(pin.name)):
                return kept
            try:
                return self.choice.wheel(pin)
            except (InputError, SpecError) as error:
                return error

        with ThreadPoolExecutor(8) as pool:
            for pin, file in zip(missing, pool.map(choose_wheel, missing), strict=True):
                if isinstance(file, EnvbuildError):
                    self.errors.append(file)
                else:
                    self.chosen[pin.name, pin.version] = file


def names_package(name: str, message: str) -> bool:
    """Return whether uv's message names a package; ``torch`` is not in ``torchvision`` or ``torch-neuronx``."""
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", message) is not None
