"""A draft of a lock: from a lock request to a plan, before anything is resolved.

It has names, but no files and digests. So the text of a Containerfile can be read and compared before the first byte
is fetched, and nothing can be built."""

from __future__ import annotations

from collections.abc import Iterable

from envbuild.core.distributions import is_image
from envbuild.lock.debian.dummy_packages import DummyPackage
from envbuild.lock.model import BaseImage, DebianFile, Lock, PythonFile, SourceFile, UnitLock
from envbuild.lock.request import LockRequest, UnitRequest
from envbuild.lock.unit_names import BASE, TOOLS

NO_DIGEST = "0" * 64  # a digest that no content has
PACKAGES = "PACKAGES.deb"  # the files of a unit that apt has not chosen yet
VERSION = "VERSION"  # of a tool that is not chosen yet


def draft_from_request(request: LockRequest) -> Lock:
    """Return the draft lock of an image. Pure: the same request has the same draft on every machine."""
    units = {name: _unit(name, unit) for name, unit in request.units.items()}
    tool = _python("uv")
    requirements = [text for unit in request.units.values() for text in (*unit.python, *unit.devel, *unit.sdists)]
    files = [tool, *map(_python, requirements)]
    sources = [_source(item.file, item.origin) for unit in request.units.values() for item in unit.archives]
    sources += [
        _source(item.file, f"{item.origin}@{item.commit}") for unit in request.units.values() for item in unit.git
    ]
    sources += [
        _source(item.file, f"{item.origin}@{item.ref}") for unit in request.units.values() for item in unit.projects
    ]
    files += [
        PythonFile(wheel.file, wheel.name, wheel.version, wheel.size, wheel.sha256, wheel.origin)
        for unit in request.units.values()
        for wheel in unit.wheels
    ]
    image = is_image(request.base)
    return Lock(
        image=request.image,
        inputs=request.digest(),
        base=request.base,
        arch=request.arch,
        python=request.python,
        epoch=0,
        tools={"envbuild": VERSION, "hpccm": VERSION, "uv": VERSION},
        versions={},
        debian={PACKAGES: DebianFile(PACKAGES, PACKAGES, "", "", "", 0, NO_DIGEST)},
        python_files={file.file: file for file in files},
        sources={source.file: source for source in sources},
        units={**units, TOOLS: UnitLock(python=(tool.file,))},
        distribution=request.distribution,
        base_image=BaseImage(request.base, NO_DIGEST, NO_DIGEST, ((NO_DIGEST, 0, ""),), request.distribution)
        if image
        else None,
    )


def _unit(name: str, unit: UnitRequest) -> UnitLock:
    return UnitLock(
        debian=(PACKAGES,) if unit.debian else (),
        requested=_sorted(unit.debian),
        essential=(PACKAGES,) if name == BASE else (),
        python=_sorted((*unit.python, *unit.devel, *(wheel.file for wheel in unit.wheels))),
        sdists=_sorted(unit.sdists),
        sources=unit.source_files(),
        replaced=tuple(str(DummyPackage.of(text)) for text in unit.replaces),
    )


def _sorted(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(texts)))


def _python(text: str) -> PythonFile:
    return PythonFile(text, text, "", 0, NO_DIGEST)


def _source(file: str, origin: str) -> SourceFile:
    return SourceFile(file, origin, NO_DIGEST)
