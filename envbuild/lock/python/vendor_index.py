"""Package indexes of vendors (``pip:pytorch/cu113``, ``pip:aws-neuron``): the packages that a recipe names come from
there only.

The package index has projects of the same names: placeholders, builds for other hardware, unrelated projects. So
the resolver gets the index of these names (`envbuild.lock.python.uv_resolver`), and the file that is locked must be
one that the vendor's index lists (`envbuild.lock.python.resolve`). Everything else on such an index is ignored: other
projects that it mirrors come from the package index.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from envbuild.core.errors import ConflictError, Finding, InputError
from envbuild.net.host_config import PythonIndexes
from envbuild.net.python_index import PackageIndex
from envbuild.net.site import Site, mirror_line, mirrors_setting
from envbuild.net.transport import Transport
from envbuild.net.urls import redact
from envbuild.spec.recipe import PythonIndex


@dataclass(frozen=True, slots=True)
class VendorIndex:
    """An index by origin, the place of this site that has it (an address is a simple index, a path a folder of files),
    the normalized names that come from it, and its listing."""

    origin: str
    place: str
    packages: frozenset[str]
    index: PackageIndex

    def check(self, name: str) -> None:
        """Raise InputError when the index does not list `name` at all."""
        if not self.index.files(name):
            line = mirror_line(self.origin)
            raise InputError(
                f"{name} is not available: it comes from {self.origin} only, and {redact(self.place)} does not list it",
                hint="packages of this name on other indexes are different ones; for a copy that has it, write into "
                f"site.yaml:  {mirrors_setting(line)}",
                mirror_lines=(line,),
            )


def vendor_indexes(indexes: Iterable[PythonIndex], site: Site, transport: Transport) -> tuple[VendorIndex, ...]:
    """Return the indexes of an image. Raises InputError with each that has no place here or does not answer,
    ConflictError when two of them claim the same package."""
    found, findings = reachable_indexes(indexes, site, transport)
    if findings:
        raise InputError.of(finding for group in findings.values() for finding in group)
    return found


def reachable_indexes(
    indexes: Iterable[PythonIndex], site: Site, transport: Transport
) -> tuple[tuple[VendorIndex, ...], dict[str, tuple[Finding, ...]]]:
    """Return the indexes of an image, each at the first of its places that lists one of its packages; and origin → the
    findings for those that have no place here, or do not answer.

    Raises ConflictError when two of them claim the same
    package.
    """
    wanted: dict[str, set[str]] = {}
    for index in indexes:
        wanted.setdefault(index.origin, set()).update(str(canonicalize_name(name)) for name in index.packages)
    owners: dict[str, list[str]] = {}
    for origin, names in wanted.items():
        for name in names:
            owners.setdefault(name, []).append(origin)
    clashes = [
        Finding(
            f"{name} cannot be locked: recipes require it from {' and from '.join(origins)}",
            hint="keep one of these recipes",
        )
        for name, origins in sorted(owners.items())
        if len(origins) > 1
    ]
    if clashes:
        raise ConflictError.of(clashes)
    found: list[VendorIndex] = []
    findings: dict[str, tuple[Finding, ...]] = {}
    for origin, names in wanted.items():
        try:
            found.append(_first_answering(origin, names, site, transport))
        except InputError as error:
            findings[origin] = error.findings
    return tuple(found), findings


def _first_answering(origin: str, names: Iterable[str], site: Site, transport: Transport) -> VendorIndex:
    places = site.roots(origin)
    if not places:
        line = mirror_line(origin, "ADDRESS")
        raise InputError(
            f"no place is known for {origin}, which provides {', '.join(sorted(names))}",
            hint=f"write into site.yaml:  {mirrors_setting(line)}",
            mirror_lines=(line,),
        )
    known = site.python(origin)
    answering: list[VendorIndex] = []
    findings: list[Finding] = []
    for place in places:
        simple, links = ((place,), ()) if "://" in place else ((), (place,))
        listing = PackageIndex(transport, PythonIndexes(simple, links, known.insecure, known.ca_bundle), origin=origin)
        candidate = VendorIndex(origin, place, frozenset(names), listing)
        try:
            if any(listing.files(name) for name in sorted(names)):
                return candidate
            answering.append(candidate)
        except InputError as error:
            findings += error.findings
    if answering:
        return answering[0]  # `check` reports each package that is missing
    raise InputError.of(findings)
