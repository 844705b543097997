"""The lock of an image, assembled from the results of its parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version

from envbuild import __version__
from envbuild.core.errors import LockError
from envbuild.lock.base_image.lock_base import LockedBase
from envbuild.lock.debian.debian_request import DebianLock
from envbuild.lock.inputs import Input, image_blobs
from envbuild.lock.model import DebianFile, Lock, PythonFile, SourceFile, UnitLock
from envbuild.lock.python.resolve import PythonLock
from envbuild.lock.request import LockRequest, UnitRequest
from envbuild.lock.unit_names import BASE, TOOLS

PythonFiles = tuple[PythonLock, PythonFile]  # the packages, and the uv that installs them


def assemble(
    request: LockRequest,
    distribution: str,
    base: LockedBase | None,
    packages: DebianLock,
    python: PythonFiles,
    sources: Mapping[str, SourceFile],
) -> Lock:
    """Return the lock without the fields that are derived from it. `base`: the base image, if there is one."""
    files, tool = python
    units = {
        unit: UnitLock(
            debian=tuple(file.file for file in packages.units[unit]),
            requested=packages.requested[unit],
            essential=packages.essential if unit == BASE else (),
            python=files.units[unit].python if unit in files.units else (),
            sdists=files.units[unit].sdists if unit in files.units else (),
            sources=request.units.get(unit, UnitRequest()).source_files(),
            replaced=packages.replaced.get(unit, ()),
        )
        for unit in packages.units
    }
    return Lock(
        image=request.image,
        inputs=request.digest(),
        base=request.base,
        arch=request.arch,
        python=request.python,
        epoch=max(packages.released, base.created if base else 0),
        tools={"envbuild": __version__, "hpccm": installed_version("hpccm"), "uv": tool.version},
        versions={},
        debian=index_by_file(file for found in packages.units.values() for file in found),
        python_files={**files.files, tool.file: tool},
        sources=sources,
        units={**units, TOOLS: UnitLock(python=(tool.file,))},
        distribution=distribution,
        base_image=base.image if base else None,
        releases=packages.releases,
    )


def found_inputs(
    base: LockedBase | None,
    packages: DebianLock | None,
    python: PythonFiles | None,
    sources: Mapping[str, SourceFile] | None,
) -> list[Input]:
    """Return the inputs of the parts that succeeded; None is a part that failed."""
    found: list[Input] = [*(image_blobs(base.image) if base else ())]
    found += [file for files in packages.units.values() for file in files] if packages else []
    found += [*python[0].files.values(), python[1]] if python else []
    found += sources.values() if sources else ()
    return found


def index_by_file(files: Iterable[DebianFile]) -> dict[str, DebianFile]:
    """Return file name → file. Raises LockError when two archives have different content under one name."""
    found: dict[str, DebianFile] = {}
    for file in files:
        if found.setdefault(file.file, file).sha256 != file.sha256:
            raise LockError(f"{file.archive} and {found[file.file].archive} have different files named {file.file}")
    return dict(sorted(found.items()))


def installed_version(package: str) -> str:
    """Return the installed version of a Python package, or ``none``."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
