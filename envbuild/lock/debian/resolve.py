"""The Debian half of a lock: base and units resolved with apt, every package listed with archive, path and sha256.

Ubuntu's packages are Debian packages too; so are those of vendors' repositories.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from envbuild.core.console import Reporter
from envbuild.core.errors import Finding, InputError
from envbuild.core.store.store import Store
from envbuild.core.yaml_reader import short
from envbuild.lock.deb822 import installed_names
from envbuild.lock.debian.apt import Apt
from envbuild.lock.debian.apt_setup import AptSetup
from envbuild.lock.debian.debian_request import DebianLock, DebianRequest
from envbuild.lock.debian.dummy_packages import required_dummies
from envbuild.lock.debian.install import DebianResolution
from envbuild.lock.debian.package_lists import Package, PackageLists, essential_packages
from envbuild.lock.debian.repositories import RepositoryFinder
from envbuild.lock.debian.stored_lock import archive_state, read_stored, store_lock
from envbuild.lock.debian.unknown_names import find_requesters, misspelt_findings, no_package_findings, unknown_names
from envbuild.lock.inputs import Input
from envbuild.lock.missing_inputs import InvalidInputError, combine_errors
from envbuild.lock.model import DebianFile
from envbuild.lock.stored_results import StoredResults
from envbuild.lock.unit_names import BASE
from envbuild.net.site import Site, mirror_line, mirrors_setting
from envbuild.net.transport import Transport

TRIES = 3  # of a resolution, while others update the lists
SIZE = re.compile(r"[0-9]{1,15}")  # bytes of a package
# What dpkg takes (pkg_name_is_illegal, parseversion), and of a path what is one word of a shell: commands and hints
# have them.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,127}")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~:_-]{0,255}")
FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~:%@=,_-]*")


def resolve(
    request: DebianRequest,
    site: Site,
    store: Store,
    reporter: Reporter,
    *,
    transport: Transport | None = None,
    resolved: list[Input] | None = None,
    tries: int = TRIES,
) -> DebianLock:
    """Resolve the base from nothing, and every other unit on top of it; a request that the store has the result of, in
    the present state of the archives, is not resolved again.

    Raises InputError (archives that cannot be read, InvalidInputError) and ConflictError (packages that cannot be
    installed together), after all units that do not depend on a missing input are resolved: `resolved` gets their
    files.

    Another process may update the lists meanwhile: then all is resolved again.
    """
    transport = transport or Transport(site.network())
    finder = RepositoryFinder(request.distribution, request.arch, site, store, transport, reporter, request.refresh)
    apt, findings = AptSetup(finder).open(request.repositories)
    if apt is None:
        raise InputError.of(findings)
    state = archive_state(apt, request.arch)
    results = StoredResults(store)
    if not findings and (stored := read_stored(request, apt, results)):
        return stored
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
    if archive_state(apt, request.arch) != state and tries > 1:
        return resolve(request, site, store, reporter, transport=transport, resolved=resolved, tries=tries - 1)
    if findings or work.errors:
        if resolved is not None:
            resolved += dict.fromkeys(file for found in chosen.values() for file in locked_files(found))
        raise combine_errors([*([InputError.of(findings)] if findings else []), *work.errors])
    lock = DebianLock(
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
    if archive_state(apt, request.arch) != state:
        raise InputError("the package lists changed again and again while they were read", hint="run the command again")
    store_lock(request, apt, lock, results)
    return lock


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
    """Return the packages as a lock lists them, sorted by file name. Raises InvalidInputError for a package whose name,
    version, file or size is none."""
    return tuple(sorted(map(_locked_file, packages), key=lambda file: file.file))


def _locked_file(package: Package) -> DebianFile:
    listed, size = package.fields.get("Filename", ""), package.fields.get("Size", "")
    path = listed.removeprefix("./")
    whole = NAME.fullmatch(package.name) and VERSION.fullmatch(package.version) and SIZE.fullmatch(size)
    if path.startswith("/") or {"", ".", ".."} & set(path.split("/")) or not FILE.fullmatch(path.rpartition("/")[2]):
        whole = None
    if not whole:
        raise InvalidInputError(
            f"{package.archive} lists {short(package.name)} {short(package.version)} with the file {short(listed)!r} "
            f"of {short(size)!r} bytes: one of these is not valid",
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
