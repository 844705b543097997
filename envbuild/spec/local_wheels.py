"""Wheels of a project that its specs name by path: their names, versions and digests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from envbuild.core.digest import file_digest
from envbuild.core.errors import Finding, SpecError
from envbuild.core.regular_file import NotRegularError, open_regular
from envbuild.spec.project import Project
from envbuild.spec.trust import check_file

ORIGIN = "spec:"  # of a wheel in a lock: before its path, relative to the folder of the spec


@dataclass(frozen=True, slots=True)
class LocalWheel:
    """A wheel beside a spec, for a `layer`: `path` as the spec has it, `file` its name, and what that states."""

    path: str
    file: str
    name: str
    version: str
    sha256: str
    size: int
    layer: str = ""

    @property
    def origin(self) -> str:
        return ORIGIN + str(PurePosixPath(self.path))


def find_wheel(folder: Path, path: str, top: Path | None = None) -> Path:
    """Return the place of a wheel: `path` is relative to the `folder` of a spec. `top`: the real path of its project
    (None: find it). Raises SpecError for one outside of the project, or that others than the caller can change."""
    top = top or (Project.find(folder.absolute()).root or folder).resolve()
    place = folder / path
    if not place.resolve().is_relative_to(top):
        raise SpecError(f"the wheel '{path}' is outside of the project {top}", f"copy it into {top}")
    check_file(place)
    return place


def read_local_wheels(folder: Path, paths: Iterable[str], layer: str = "", where: str = "") -> tuple[LocalWheel, ...]:
    """Return the wheels at `paths`, relative to the `folder` of a spec, of one layer.

    Raises SpecError with every path that is not a wheel of the project; `where` is the place of the layer.
    """
    found: list[LocalWheel] = []
    findings: list[Finding] = []
    top = (Project.find(folder.absolute()).root or folder).resolve()
    for path in dict.fromkeys(paths):
        try:
            found.append(replace(read_local_wheel(folder, top, path), layer=layer))
        except SpecError as error:
            findings += error.at(where).findings
    names = [wheel.name for wheel in found]
    for wheel in found:
        if names.count(wheel.name) > 1:
            findings.append(Finding(f"the wheel '{wheel.path}' is one of several of {wheel.name}", where, "keep one"))
    if findings:
        raise SpecError.of(findings)
    return tuple(found)


def read_local_wheel(folder: Path, top: Path, path: str) -> LocalWheel:
    """Return the wheel at `path`, relative to `folder`. Raises SpecError if it is not a wheel below `top`, or
    one that others than the caller can change."""
    # imported here: most specs name no wheel, and a command that has nothing to do must not load it
    from packaging.utils import canonicalize_name, parse_wheel_filename

    place = find_wheel(folder, path, top)
    try:
        name, version, _, _ = parse_wheel_filename(place.name)
        with open_regular(place) as file:
            size = file.seek(0, 2)
        digest = file_digest(place)
    except ValueError as error:  # also a number that Python does not read
        raise SpecError(
            f"'{path}' does not have the name of a wheel: {error}", "keep the name it was built with"
        ) from None
    except FileNotFoundError:
        raise SpecError(f"there is no wheel {place}", "a path is relative to the folder of the spec") from None
    except (NotRegularError, OSError) as error:
        raise SpecError(f"the wheel {place} cannot be read: {error}") from None
    return LocalWheel(path, place.name, str(canonicalize_name(name)), str(version), digest, size)
