"""The part of the Python half of a lock that concerns packages of no index: wheels of the project, projects in
repositories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from packaging.tags import Tag
from packaging.utils import parse_wheel_filename

from envbuild.core.console import Reporter
from envbuild.core.digest import copy_digested
from envbuild.core.errors import EngineError, EnvbuildError, Finding, InputError, SpecError
from envbuild.core.regular_file import open_regular
from envbuild.core.store.store import Store
from envbuild.lock.model import PythonFile, SourceFile
from envbuild.lock.python.project_metadata import ProjectMetadata, read_project, read_wheel
from envbuild.lock.request import UnitRequest
from envbuild.lock.unit_names import VENV
from envbuild.spec.local_wheels import ORIGIN, LocalWheel, find_wheel
from envbuild.spec.recipe import GitProject


def with_metadata(
    units: Mapping[str, UnitRequest],
    sources: Mapping[str, SourceFile],
    store: Store,
    python: str,
    reporter: Reporter,
    *,
    where: Mapping[str, str],
) -> dict[str, UnitRequest]:
    """Return the units with what their projects and wheels are and require: packages that the image gets, requirements
    of their builds, and of their use.

    sources: the locked tarballs
    where: file name of a source → its place in the spec

    Raises SpecError with the findings of all of them.
    """
    found: dict[str, UnitRequest] = dict(units)
    findings: list[Finding] = []
    needs: list[str] = []
    for name, unit in units.items():
        gives, build = list(unit.gives), list(unit.python)
        items: list[GitProject | LocalWheel] = [*unit.projects, *unit.wheels]
        for item in items:
            try:
                sha256 = item.sha256 if isinstance(item, LocalWheel) else sources[item.file].sha256
                pinned = store.pin_blob(sha256)
                if isinstance(item, LocalWheel):
                    read = read_wheel(pinned.path, item, python)
                else:
                    read = read_project(pinned.path, item, python)
            except SpecError as error:
                findings += error.at(where.get(item.file, "")).findings
                continue
            gives.append(f"{read.name}=={read.version}")
            build += read.build
            needs += read.requires or ()
            report_unknown(read, reporter)
        found[name] = replace(unit, gives=tuple(gives), python=tuple(dict.fromkeys(build)))
    if findings:
        raise SpecError.of(findings)
    venv = found[VENV]
    found[VENV] = replace(venv, python=tuple(dict.fromkeys([*venv.python, *needs])))
    return found


def report_unknown(read: ProjectMetadata, reporter: Reporter) -> None:
    """Warn about a package whose requirements only its build knows."""
    if read.requires is None:
        reporter.warn(
            f"{read.name} {read.version} computes its requirements while it is built: add those that it has to "
            "python-packages"
        )


def lock_wheels(
    units: Mapping[str, UnitRequest], folder: Path, tags: tuple[Tag, ...], store: Store, where: Mapping[str, str]
) -> dict[str, list[PythonFile]]:
    """Put the wheels of the project into the store; return unit → their entries in the lock.

    folder: that of the spec
    tags: of the wheels that the image supports
    where: file name of a wheel → its place in the spec

    Raises SpecError for one that the image does not support, InputError for one that changed meanwhile.
    """
    found: dict[str, list[PythonFile]] = {}
    findings: list[Finding] = []
    for name, unit in units.items():
        for wheel in unit.wheels:
            if not set(tags) & parse_wheel_filename(wheel.file)[3]:
                text = f"the wheel '{wheel.path}' is not for this image, whose wheels have tags as {tags[0]}"
                findings.append(
                    Finding(
                        text, where.get(wheel.file, ""), "build it with the Python and on the platform of the image"
                    )
                )
                continue
            entry = PythonFile(wheel.file, wheel.name, wheel.version, wheel.size, wheel.sha256, wheel.origin)
            add_wheel(entry, folder, store)
            found.setdefault(name, []).append(entry)
    if findings:
        raise SpecError.of(findings)
    return found


def is_local(entry: object) -> bool:
    """Return whether an input is a wheel beside a spec."""
    return isinstance(entry, PythonFile) and entry.origin.startswith(ORIGIN)


def add_wheel(entry: PythonFile, folder: Path, store: Store) -> None:
    """Put a locked wheel, from its path below the `folder` of the spec, into the store. Raises InputError, and
    SpecError for one that is outside of the project, or that others than the caller can change.

    A file with another digest does not become a blob, which others can read: the lock may be another user's."""
    if store.has_blob(entry.sha256, entry.size):
        return
    path = find_wheel(folder, entry.origin.removeprefix(ORIGIN))
    try:
        with store.filled(), store.workdir() as work:
            with open_regular(path) as reading, (work / "wheel").open("xb") as writing:
                found = copy_digested(reading, writing)
            if found == entry.sha256:
                store.add_blob(work / "wheel")
    except FileNotFoundError:
        raise InputError(f"the wheel {path} of the lock is missing", "copy it there again") from None
    except OSError as error:
        raise EngineError(f"the wheel {path} cannot be copied into the store {store.root}: {error.strerror}") from error
    if found != entry.sha256:
        raise InputError(
            f"the wheel {path} has sha256 {found}, and the lock has {entry.sha256}",
            "restore the file, or accept the new one: envbuild lock NAME",
        )


def add_wheels(entries: list[PythonFile], folder: Path, store: Store) -> list[Finding]:
    """Put locked wheels into the store. Return the findings for those that are not as the lock has them."""
    findings: list[Finding] = []
    for entry in entries:
        try:
            add_wheel(entry, folder, store)
        except EnvbuildError as error:
            if not isinstance(error, InputError):
                raise
            findings += error.findings
    return findings
