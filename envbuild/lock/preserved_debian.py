"""The Debian part of an older lock, preserved for a request that requires the same of apt.

An archive lists the newest version of a package alone. Without this, a change of the Python packages of an image would
move every Debian package that the archive has replaced since: other layers, built and published again. A file that left
the archive is in the store, in the pool for some days, or in a snapshot service (`envbuild.lock.snapshots`); one that
no place has is locked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from envbuild.core.store.store import Store
from envbuild.lock.deb822 import installed_names
from envbuild.lock.debian.debian_request import DebianLock, DebianRequest
from envbuild.lock.model import BaseImage, DebianFile, Lock, UnitLock
from envbuild.lock.snapshots import archive_dates, package_arch, snapshot_places
from envbuild.lock.unit_names import BASE, TOOLS
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from envbuild.net.urls import join

MOST = 8  # files that are searched: the others left the archive at the same time


def preserve_debian(previous: Lock, request: DebianRequest, base: BaseImage | None) -> DebianLock | None:
    """Return the Debian part of an older lock; None if it does not answer `request`, on the base image `base`."""
    present = installed_names(request.installed or "")
    wanted = {unit: tuple(sorted(set(names))) for unit, names in request.wanted(present).items()}
    before = {unit: found for unit, found in previous.units.items() if unit != TOOLS}
    requested = {unit: found.requested for unit, found in before.items() if found.requested}
    same = (previous.arch, previous.distribution) == (request.arch, request.distribution.name)
    if not same or previous.base_image != base or requested != {unit: names for unit, names in wanted.items() if names}:
        return None
    if not has_archives(previous.debian.values(), request) or not fits_replacements(before, previous, request, present):
        return None
    files = {unit: tuple(previous.debian[file] for file in found.debian) for unit, found in before.items()}
    return DebianLock(
        {unit: files.get(unit, ()) for unit in request.units},
        before[BASE].essential if BASE in before else (),
        previous.epoch,
        wanted,
        {unit: before[unit].replaced for unit in request.replaces if unit in before},
        previous.releases,
    )


def has_archives(files: Iterable[DebianFile], request: DebianRequest) -> bool:
    """Return whether files are of the vendors' repositories that are requested, each of which has one: the versions of
    another one could be newer."""
    vendors = {repository.origin for repository in request.repositories}
    used = {file.archive for file in files}
    return vendors <= used and not any(archive.startswith("apt:") for archive in used - vendors)


def fits_replacements(
    before: Mapping[str, UnitLock], previous: Lock, request: DebianRequest, present: frozenset[str]
) -> bool:
    """Return whether the packages that layers replace are those of the older lock, which lists the needed ones."""
    names = {file.name for file in previous.debian.values()}
    for unit, dummies in request.dummies(present).items():
        had = set(before[unit].replaced) if unit in before else set()
        if not had <= set(map(str, dummies)):
            return False
        if any(str(dummy) not in had and dummy.name in names for dummy in dummies):
            return False
    return True


def unlisted_files(preserved: DebianLock, found: DebianLock) -> Sequence[DebianFile]:
    """Return the files of an older lock that apt no longer chooses, because the archives do not list them."""
    listed = {file.sha256 for files in found.units.values() for file in files}
    return [file for file in all_files(preserved) if file.sha256 not in listed]


def all_files(lock: DebianLock) -> Sequence[DebianFile]:
    """Return the files of all units, each once."""
    return list(dict.fromkeys(file for files in lock.units.values() for file in files))


def are_obtainable(files: Sequence[DebianFile], previous: Lock, store: Store, site: Site, transport: Transport) -> bool:
    """Return whether files are in the store, or still have a place: the pool of their archive, or a snapshot of it."""
    dates = archive_dates(previous)

    def has_place(file: DebianFile) -> bool:
        pool = [join(root, file.path) for root in site.roots(file.archive, package_arch(file.file))]
        return any(transport.size(place) == file.size for place in [*pool, *snapshot_places(site, file, dates)])

    return all(map(has_place, [file for file in files if not store.has_blob(file.sha256)][:MOST]))
