"""Dry runs of a lock: what changed in the world between ``lock --dry-run`` and the lock itself.

A dry run stores the digest of the lock that it printed, and the dates of the archives (`StoredResults`). Its key is the
file of the lock, the digest of the request, the digest of the older lock, the packages to upgrade, and the options that
choose other versions. The next lock of that key compares: a difference comes from an archive, an index or a source that
moved on. ``--refresh`` is not part of the key: it only reads what moved on.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from envbuild.core.console import ProgressReporter
from envbuild.core.distributions import find_distribution
from envbuild.core.errors import EnvbuildError
from envbuild.lock.debian.apt_setup import AptSetup
from envbuild.lock.debian.repositories import RepositoryFinder
from envbuild.lock.model import Lock, lock_digest
from envbuild.lock.request import LockRequest
from envbuild.lock.stored_results import StoredResults
from envbuild.net.transport import Transport
from envbuild.spec.workspace import Workspace

KIND = "dry-run"
INDEX = "the package index, or a source"


def run_key(
    path: Path, request: LockRequest, previous: Lock | None, upgrade: frozenset[str], *, only: bool, fresh: bool
) -> list[object]:
    """Return the key of a dry run of the lock at `path`. `only`, `fresh`: as in `envbuild.lock.update.update_lock`."""
    older = lock_digest(previous) if previous else ""
    return [str(path), request.digest(), older, sorted(upgrade), only, fresh]


def record_dry_run(key: list[object], lock: Lock, workspace: Workspace) -> None:
    """Store what a dry run printed."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    value = {"lock": lock_digest(lock), "releases": dict(lock.releases), "at": now}
    StoredResults(workspace.store).write(KIND, key, value)


def compare_with_dry_run(key: list[object], lock: Lock, workspace: Workspace) -> str:
    """Return a line about a lock that is not what the dry run before it printed; empty if it is, or there was none.

    The record of the dry run is removed."""
    results = StoredResults(workspace.store)
    value = results.read(KIND, key)
    results.forget(KIND, key)
    if not isinstance(value, dict) or value.get("lock") == lock_digest(lock):
        return ""
    releases = value.get("releases")
    moved = moved_archives(releases, lock.releases) if isinstance(releases, dict) else {}
    return (
        f"{' and '.join(moved) or INDEX} moved on since the dry run of {value.get('at')}: the lock has other versions"
    )


def moved_archives(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return archive → (date before, date now) of the Release files that are other ones."""
    return {name: (before[name], now[name]) for name in sorted(before.keys() & now.keys()) if before[name] != now[name]}


def present_dates(request: LockRequest, workspace: Workspace) -> dict[str, str]:
    """Return archive → the date of its Release file now; nothing where the archives cannot be read."""
    site, store = workspace.site, workspace.store
    distribution = find_distribution(request.distribution or request.base)
    reporter = ProgressReporter(workspace.reporter)
    finder = RepositoryFinder(distribution, request.arch, site, store, Transport(site.network()), reporter)
    try:
        apt, _ = AptSetup(finder).open(request.repositories)
    except EnvbuildError:
        return {}
    return apt.release_dates(apt.lists()) if apt else {}
