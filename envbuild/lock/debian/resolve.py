"""The Debian half of a lock: base and units resolved with apt, every package listed with archive, path and sha256.

Ubuntu's packages are Debian packages too; so are those of vendors' repositories.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from envbuild.core.console import Reporter
from envbuild.core.distributions import Distribution
from envbuild.core.errors import Finding, InputError
from envbuild.core.store.store import Store
from envbuild.core.yaml_reader import short
from envbuild.lock.deb822 import installed_names
from envbuild.lock.debian.apt import Apt
from envbuild.lock.debian.apt_setup import AptSetup
from envbuild.lock.debian.dummy_packages import DummyPackage, required_dummies
from envbuild.lock.debian.install import DebianResolution
from envbuild.lock.debian.package_lists import Package, PackageLists, essential_packages
from envbuild.lock.debian.repositories import RepositoryFinder
from envbuild.lock.debian.unknown_names import find_requesters, misspelt_findings, no_package_findings, unknown_names
from envbuild.lock.inputs import Input
from envbuild.lock.missing_inputs import InvalidInputError, combine_errors
from envbuild.lock.model import DebianFile
from envbuild.lock.unit_names import BASE
from envbuild.net.site import Site, mirror_line, mirrors_setting
from envbuild.net.transport import Transport
from envbuild.spec.recipe import AptRepository

SIZE = re.compile(r"[0-9]{1,15}")  # bytes of a package


@dataclass(frozen=True, slots=True)
class DebianRequest:
    """The packages that an image requires of apt.

    `units`: name → package names, ``base`` among them.
    `repositories`: of vendors, open to every unit but the base. apt chooses the highest version of all sources, so
    that a vendor's newer one takes precedence over the distribution's (intended for DOCA's rdma-core).
    `installed`: dpkg's status file of the image that is the base. The base then has no packages of its own, and the
    packages that are installed there are not resolved.
    `prefer`: package → version, used where the archives still have it.
    `replaces`: unit → packages (``libucx0=1.20.1``) that are not installed, because the image has a replacement; apt
    chooses the real one where that is too old for a package that depends on it.
    `where`: unit or layer → place in the spec, and `askers`: package of the unit ``debian`` → layer, for findings.
    """

    distribution: Distribution
    arch: str
    units: Mapping[str, Sequence[str]]
    repositories: Sequence[AptRepository] = ()
    installed: str | None = None
    prefer: Mapping[str, str] = field(default_factory=dict)
    refresh: bool = False
    replaces: Mapping[str, Sequence[str]] = field(default_factory=dict)
    where: Mapping[str, str] = field(default_factory=dict)
    askers: Mapping[str, str] = field(default_factory=dict)

    def wanted(self, present: frozenset[str]) -> dict[str, list[str]]:
        """Return unit → the names that are not `present` (installed in the base image)."""
        return {unit: [name for name in names if name not in present] for unit, names in self.units.items()}

    def dummies(self, present: frozenset[str]) -> dict[str, list[DummyPackage]]:
        """Return unit → its dummy packages, without those whose real package is `present`."""
        return {
            unit: [DummyPackage.of(text) for text in texts if text.partition("=")[0] not in present]
            for unit, texts in self.replaces.items()
        }


@dataclass(frozen=True, slots=True)
class DebianLock:
    """The choice of apt: unit → files, sorted by file name; the files of the base that are unpacked first; the
    archive's date; unit → the requested names that the base image does not have, sorted; unit → its dummy packages
    (``libucx0=1.20.1+envbuild``); archive → date of its Release file.
    """

    units: Mapping[str, tuple[DebianFile, ...]]
    essential: tuple[str, ...]
    released: int
    requested: Mapping[str, tuple[str, ...]]
    replaced: Mapping[str, tuple[str, ...]]
    releases: Mapping[str, str] = field(default_factory=dict)


def resolve(
    request: DebianRequest,
    site: Site,
    store: Store,
    reporter: Reporter,
    *,
    transport: Transport | None = None,
    resolved: list[Input] | None = None,
) -> DebianLock:
    """Resolve the base from nothing, and every other unit on top of it.

    Raises InputError (archives that cannot be read, InvalidInputError) and ConflictError (packages that cannot be
    installed together), after all units that do not depend on a missing input are resolved: `resolved` gets their
    files.
    """
    transport = transport or Transport(site.network())
    finder = RepositoryFinder(request.distribution, request.arch, site, store, transport, reporter, request.refresh)
    apt, findings = AptSetup(finder).open(request.repositories)
    if apt is None:
        raise InputError.of(findings)
    lists = apt.lists()
    packages = PackageLists(lists)
    present = installed_names(request.installed or "")
    wanted, dummies = request.wanted(present), request.dummies(present)
    unknown = unknown_names(packages, wanted)
    findings = check_names(request, packages, unknown, apt, findings)
    with store.workdir() as workdir:
        waiting = frozenset(unknown)
        work = DebianResolution(
            apt, packages, workdir, request.prefer, reporter, request.where, waiting, partial=bool(findings)
        )
        chosen = work.choose(wanted, request.installed, request.arch, dummies)
    if findings or work.errors:
        if resolved is not None:
            resolved += dict.fromkeys(file for found in chosen.values() for file in locked_files(found))
        raise combine_errors([*([InputError.of(findings)] if findings else []), *work.errors])
    return DebianLock(
        {unit: locked_files(chosen.get(unit, ())) for unit in request.units},
        ()
        if request.installed is not None
        else tuple(file.file for file in locked_files(essential_packages(chosen[BASE]))),
        apt.released(),
        {unit: tuple(sorted(set(names))) for unit, names in wanted.items()},
        {
            unit: tuple(str(dummy) for dummy in required_dummies(chosen.get(unit, ()), of))
            for unit, of in dummies.items()
        },
        apt.release_dates(lists),
    )


def check_names(
    request: DebianRequest,
    packages: PackageLists,
    unknown: Mapping[str, Sequence[str]],
    apt: Apt,
    findings: Sequence[Finding],
) -> list[Finding]:
    """Return `findings`, of the archives that cannot be read, and those about names that none of the others has.

    Raises InvalidInputError for unknown names where every archive was read: no other place would help.
    """
    if not unknown:
        return [*findings]
    missing = find_requesters(unknown, request.askers)
    if not findings:
        archives = [request.distribution.family.capitalize(), *(item.origin for item in request.repositories)]
        raise InvalidInputError.of(no_package_findings(packages, missing, archives, request.where))
    read = {source.archive for source in apt.sources}
    closed = [item.origin for item in request.repositories if item.origin not in read]
    return [*findings, *misspelt_findings(packages, missing, closed, request.where)]


def locked_files(packages: Iterable[Package]) -> tuple[DebianFile, ...]:
    """Return the packages as a lock lists them, sorted by file name. Raises InvalidInputError for a package whose file
    has no name below its archive, or no size."""
    return tuple(sorted(map(_locked_file, packages), key=lambda file: file.file))


def _locked_file(package: Package) -> DebianFile:
    listed, size = package.fields.get("Filename", ""), package.fields.get("Size", "")
    path = listed.removeprefix("./")
    if not path or path.startswith("/") or {"", ".", ".."} & set(path.split("/")) or not SIZE.fullmatch(size):
        raise InvalidInputError(
            f"{package.archive} lists {package.name} {package.version} with the file {short(listed)!r} "
            f"of {short(size)!r} bytes",
            f"use another place of this archive: {mirrors_setting(mirror_line(package.archive))} in site.yaml",
        )
    return DebianFile(
        file=path.rpartition("/")[2],
        name=package.name,
        version=package.version,
        archive=package.archive,
        path=path,
        size=int(size),
        sha256=package.fields["SHA256"],
    )
