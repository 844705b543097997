"""The step resolve → lock: from the requirements of an image to every input by its digest.

Its parts are the base (if it is a third-party image), Debian packages, Python packages and sources. A failure of one
part does not stop the others, so that one error names everything that is missing. If that can be fixed in the site
configuration, everything else is in the store by then, unless it is large: nothing large is downloaded before an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from envbuild.core.console import Reporter
from envbuild.core.distributions import is_image, is_local_image
from envbuild.core.errors import ConflictError, EnvbuildError, InputError, SpecError
from envbuild.core.store.store import Store
from envbuild.core.text import amount, counted
from envbuild.lock import pending_archives
from envbuild.lock.assembly import PythonFiles, assemble, found_inputs
from envbuild.lock.base_image.lock_base import LockedBase
from envbuild.lock.base_image.own_images import NO_IMAGES, OwnImages
from envbuild.lock.component_versions import check_versions, component_versions
from envbuild.lock.debian.debian_request import DebianLock
from envbuild.lock.git.commit_hint import CommitHint
from envbuild.lock.lock_parts import LockParts, full_python
from envbuild.lock.missing_inputs import combine_errors, fixable_in_site_config
from envbuild.lock.model import Lock, SourceFile
from envbuild.lock.python import resolve as python
from envbuild.lock.python.vendor_index import vendor_indexes
from envbuild.lock.python_part import lock_python
from envbuild.lock.request import LockRequest
from envbuild.lock.upgrades import EVERYTHING, check_upgrades
from envbuild.net.site import Site

LARGE = 100_000_000  # bytes that are not downloaded for a lock that failed
Part = TypeVar("Part")


def make_lock(
    request: LockRequest,
    site: Site,
    store: Store,
    reporter: Reporter,
    *,
    previous: Lock | None = None,
    upgrade: frozenset[str] = frozenset(),
    refresh: bool = False,
    waivers: Iterable[Mapping[str, str]] = (),
    find_conflicts: python.FindConflicts = lambda wheels: (),
    commit_hints: Mapping[str, CommitHint] | None = None,
    own: OwnImages = NO_IMAGES,
    newest: Mapping[str, str] | None = None,
    only: bool = False,
) -> Lock:
    """Return the lock of everything that `request` requires.

    previous: a lock whose versions are preferred while they are consistent and available. If it answers this very
        request, it is returned as it is, unless `refresh`
    upgrade: names of packages whose version is chosen again; ``base`` for the base image, ``*`` for all
    refresh: find out again what is no longer available
    find_conflicts: returns the conflicts between the Python packages of the image, by their names; called early
    commit_hints: source file → where the user changes its commit (`envbuild.lock.commit_origin`)
    own: returns the OCI layout of an image of the project that is the base of this one
    newest: Python package → the newest version that the facts know, which is preferred to newer ones
    only: nothing but the Python packages in `upgrade` may change

    Raises InputError with all inputs that are not available, after everything else was fetched into the store if that
    is not large (`LARGE`), and if the site configuration can fix the rest: a mistake in the spec is reported at once;
    SpecError, ConflictError, EngineError (the store).
    """
    waiver_rows = tuple(dict(waiver) for waiver in waivers)
    components = request.spec.get("components")
    projects = {project.name for unit in request.units.values() for project in unit.projects}
    if previous and request.is_answered_by(previous.inputs):
        check_upgrades(previous, upgrade, components, projects)  # at once, where the packages are known already
        changeable = is_local_image(request.base)  # the file may have changed since
        if not (upgrade or refresh or changeable) and previous.waivers == waiver_rows:
            check_versions(request, previous)
            return previous
    previous = None if EVERYTHING in upgrade else previous
    hints = commit_hints or {}
    parts = LockParts(
        request, site, store, reporter, previous, upgrade, refresh, find_conflicts, hints, own, newest or {}, only
    )
    lock = replace(LockMaker(parts).run(), waivers=waiver_rows)
    pending_archives.remove_pending(store, lock.sources)
    check_upgrades(lock, upgrade, components, projects)
    check_versions(request, lock)
    return replace(lock, versions=component_versions(request, lock))


@dataclass(slots=True)
class LockMaker:
    """One run of locking. errors: the errors of the parts."""

    parts: LockParts
    errors: list[EnvbuildError] = field(default_factory=list)

    def run(self) -> Lock:
        """Return the lock without the fields that are derived from it. Raises as `make_lock`."""
        parts, request = self.parts, self.parts.request
        base = self.attempt(parts.lock_base_image) if is_image(request.base) else None
        # projects in repositories are sources, and state what the Python packages are resolved from
        early = self.attempt(parts.lock_all_sources) if parts.has_projects else None
        packages, python_lock = self.lock_packages(base, early)
        sources = early if parts.has_projects else self.attempt(parts.lock_all_sources)
        if packages is None or python_lock is None or sources is None or self.errors:
            parts.resolved += found_inputs(base, packages, python_lock, sources)
            self.fetch_resolved()
            raise combine_errors(self.errors)
        return assemble(request, parts.distribution.name, base, packages, python_lock, sources)

    def lock_packages(
        self, base: LockedBase | None, sources: Mapping[str, SourceFile] | None
    ) -> tuple[DebianLock | None, PythonFiles | None]:
        """Lock the Debian and the Python packages.

        Without the requested `base` nothing can be resolved on top of it; other missing inputs are reported too.
        """
        parts, request = self.parts, self.parts.request
        on_image = is_image(request.base)
        if on_image and base is None:
            parts.reporter.info(f"the packages of {request.image} wait for its base image")
            self.attempt(parts.query_archives)
            self.attempt(lambda: vendor_indexes(request.indexes, parts.site, parts.transport))
            return None, None
        packages = self.attempt(lambda: parts.lock_debian(base))
        number = full_python(request.python, packages.units.values() if packages and not on_image else ())
        if parts.has_projects and sources is None:
            parts.reporter.info(f"the Python packages of {request.image} wait for the sources of its projects")
            return packages, None
        return packages, self.attempt(lambda: lock_python(parts, number, base, sources))

    def attempt(self, part: Callable[[], Part]) -> Part | None:
        """Return the result of `part`; record its error for the end."""
        try:
            return part()
        except (InputError, ConflictError, SpecError) as error:
            self.errors.append(error)
            return None

    def fetch_resolved(self) -> None:
        """Download what is resolved, so that only missing inputs remain to be fetched; a failed download is one too. If
        that is much, only check the places that have it.

        A mistake in the spec is reported without that.
        """
        from envbuild.lock.cached_inputs import report_already_cached
        from envbuild.lock.fetch import fetch_inputs
        from envbuild.lock.place_checks import check_places

        parts, image = self.parts, self.parts.request.image
        store, site, reporter, found = parts.store, parts.site, parts.reporter, parts.resolved
        pending_archives.record_pending(
            store, site, (entry for entry in found if isinstance(entry, SourceFile) and not entry.git)
        )
        if not fixable_in_site_config(self.errors):
            return
        wanted = list({entry.sha256: entry for entry in found if not store.has_blob(entry.sha256, entry.size)}.values())
        size = sum(entry.size for entry in wanted)
        try:
            if size > LARGE:
                others = counted(len(wanted), "other input")
                reporter.info(f"{image}: {others}, {amount(size)}: not downloaded before these are available")
                check_places(image, wanted, store, site, reporter, parts.request.source_places())
            else:
                fetch_inputs(image, wanted, store, site, reporter)
        except EnvbuildError as error:
            self.errors.append(error)
        report_already_cached(image, found, store, site, reporter, self.errors)
