"""The Debian half of a lock in the store (`envbuild.lock.stored_results`).

Its key is the whole request to apt, with the versions that are preferred and the digest of the packages that a base
image has, and the state of the archives: each line of sources.list with the sha256 of the Release file that apt has
verified for it, which has the digests of all package lists, and the version of apt. So an archive that moved on makes
another key. Without the Release file of a source there is no key, and nothing is stored.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

from envbuild.core.digest import file_digest
from envbuild.lock.debian.apt import Apt
from envbuild.lock.debian.debian_request import DebianLock, DebianRequest
from envbuild.lock.model import DebianFile
from envbuild.lock.stored_results import StoredResults

KIND = "debian"


def archive_state(apt: Apt, arch: str) -> list[list[str]] | None:
    """Return the state of the archives of an apt; None if it is not known."""
    lists, found = apt.root / "state/lists", []
    for source in apt.sources:
        release = source.release(lists)
        if release is None:
            return None
        found.append([source.archive, source.line(arch), file_digest(release)])
    return [[str(apt.own), apt.get("--version").partition("\n")[0]], *found]


def request_key(request: DebianRequest, state: list[list[str]] | None) -> list[Any] | None:
    """Return the key of a request, in this state of its archives; None if that is not known."""
    if state is None:
        return None
    installed = request.installed if request.installed is None else hashlib.sha256(request.installed.encode())
    return [
        request.distribution.name,
        request.arch,
        {unit: sorted(set(names)) for unit, names in request.units.items()},
        [dataclasses.asdict(repository) for repository in request.repositories],
        installed.hexdigest() if installed else None,
        dict(request.prefer),
        {unit: sorted(names) for unit, names in request.replaces.items()},
        state,
    ]


def read_stored(request: DebianRequest, apt: Apt, results: StoredResults) -> DebianLock | None:
    """Return the stored result of a request; None if there is none."""
    key = request_key(request, archive_state(apt, request.arch))
    return parse_lock(results.read(KIND, key), request) if key else None


def store_lock(request: DebianRequest, apt: Apt, lock: DebianLock, results: StoredResults) -> None:
    """Store the result of a request.

    It is the result of the same request that prefers the versions in it as well: apt chose them without that, and the
    preference of a version that is chosen anyway changes nothing.
    """
    chosen = {file.name: file.version for files in lock.units.values() for file in files}
    state = archive_state(apt, request.arch)
    for prefer in (request.prefer, chosen):
        if key := request_key(dataclasses.replace(request, prefer=prefer), state):
            results.write(KIND, key, dataclasses.asdict(lock))


def parse_lock(value: Any, request: DebianRequest) -> DebianLock | None:
    """Return the result in a value of JSON; None if it is not one. Its units have the order of the request, which a
    lock file has."""
    try:
        return DebianLock(
            {unit: tuple(DebianFile(**file) for file in value["units"][unit]) for unit in request.units},
            tuple(value["essential"]),
            int(value["released"]),
            {unit: tuple(value["requested"][unit]) for unit in request.units},
            {unit: tuple(value["replaced"][unit]) for unit in request.replaces},
            dict(value["releases"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
