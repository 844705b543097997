"""Rows of a report that a lock states: components and where they are from, places of inputs, the bill of materials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from envbuild.build.plan.sbom import ORIGIN, sbom
from envbuild.lock.model import Lock
from envbuild.lock.unit_names import build_unit
from envbuild.report.model import Component, Origin, Package
from envbuild.verify.contents.metadata import normalize_name

if TYPE_CHECKING:
    from envbuild.spec.dev_project import DevContent

INDEX = "Python package index"
COMPILED = "compiled in the build"


def component_rows(lock: Lock) -> tuple[Component, ...]:
    """Return the components of a lock, by name, each with the origin that the lock has for it."""
    return tuple(
        Component(name, version, component_origin(name, lock)) for name, version in sorted(lock.versions.items())
    )


def component_origin(name: str, lock: Lock) -> str:
    """Return where a component is from: its sources, the package index, or an archive of Debian packages; empty if the
    lock does not state it."""
    unit, version = lock.units.get(build_unit(name)), lock.versions.get(name, "")
    if unit and unit.sources:
        return ", ".join(f"{lock.sources[file].origin}" for file in unit.sources if file in lock.sources)
    if unit and unit.sdists:
        return f"{INDEX}, {COMPILED}"
    own = normalize_name(name)
    for file in lock.python_files.values():
        package = normalize_name(file.name)
        same = file.version == version and (package == own or package.startswith(f"nvidia-{own}"))
        if same or package.startswith(f"nvidia-{own}-runtime"):  # wheels of a CUDA toolkit have versions of their own
            return file.origin or INDEX
    used = {file for found in lock.image_units() for file in found.debian}
    for deb in (lock.debian[file] for file in sorted(used) if file in lock.debian):
        if deb.version == version:
            return deb.archive
    return ""


def origin_rows(lock: Lock) -> tuple[Origin, ...]:
    """Return the places of all inputs, of the image and of its builds, the largest first."""
    files: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for name, size in _input_places(lock):
        files[name] += 1
        sizes[name] += size
    return tuple(
        Origin(name, files[name], sizes[name]) for name in sorted(files, key=lambda name: (-sizes[name], name))
    )


def _input_places(lock: Lock) -> Iterator[tuple[str, int]]:
    """Yield the place of each input, and its size."""
    for deb in lock.debian.values():
        yield deb.archive, deb.size
    for file in lock.python_files.values():
        yield file.origin or INDEX, file.size
    for source in lock.sources.values():
        yield source.origin, source.size
    if lock.base_image:
        yield lock.base_image.reference, sum(size for _, size, _ in lock.base_image.layers)


def package_rows(lock: Lock, contents: Iterable[DevContent] = ()) -> tuple[Package, ...]:
    """Return the rows of the bill of materials of an image (`envbuild.build.plan.sbom`), by kind and name."""
    components: Any = sbom(lock, contents)["components"]
    rows = [package_row(component) for component in components]
    return tuple(sorted(rows, key=lambda row: (row.kind, row.name, row.version)))


def package_row(component: dict[str, Any]) -> Package:
    """Return the row of one component of CycloneDX. Its kind is the type of its package URL."""
    reference = str(component.get("purl", ""))
    kind = reference.removeprefix("pkg:").partition("/")[0] or str(component["type"])
    origins = [item["value"] for item in component.get("properties", ()) if item["name"] == ORIGIN]
    hashes = [item["content"] for item in component.get("hashes", ())]
    name, version = str(component["name"]), str(component.get("version", ""))
    origin = origins[0] if origins else INDEX if kind == "pypi" else ""
    return Package(name, version, kind, origin, hashes[0] if hashes else "")
