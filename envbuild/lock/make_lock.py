"""The step resolve → lock: from the requirements of an image to every input by its digest.

Its parts are the base (if it is a third-party image), Debian packages, Python packages and sources. A failure of one
part does not stop the others, so that one error names everything that is missing. If that can be fixed in the site
configuration, everything else is in the store by then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from packaging.utils import canonicalize_name

from envbuild.core.console import Reporter
from envbuild.core.distributions import PLACE, Distribution, find_distribution, is_image
from envbuild.core.errors import ConflictError, EnvbuildError, InputError, SpecError
from envbuild.core.store.store import Store
from envbuild.lock import pending_archives, unit_names
from envbuild.lock.assembly import PythonFiles, assemble, found_inputs
from envbuild.lock.base_image.lock_base import LockedBase, lock_base
from envbuild.lock.component_versions import check_versions, component_versions
from envbuild.lock.debian import resolve as debian
from envbuild.lock.debian.repositories import AptSetup
from envbuild.lock.diff import BASE, EVERYTHING, check_upgrades
from envbuild.lock.inputs import Input
from envbuild.lock.missing_inputs import combine_errors, fixable_in_site_config
from envbuild.lock.model import DebianFile, Lock, SourceFile
from envbuild.lock.python import choose_files
from envbuild.lock.python import resolve as python
from envbuild.lock.python.pins import Pin
from envbuild.lock.python.uv import Uv
from envbuild.lock.python.uv_resolver import Resolver
from envbuild.lock.python.vendor_index import reachable_indexes, vendor_indexes
from envbuild.lock.request import LockRequest
from envbuild.lock.sources import lock_sources
from envbuild.net.download import Transfer
from envbuild.net.python_index import PackageIndex
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from envbuild.net.uv_program import uv_version

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
    commit_hints: Mapping[str, str] | None = None,
) -> Lock:
    """Return the lock of everything that `request` requires.

    previous: a lock whose versions are preferred while they are consistent and available. If it answers this very
        request, it is returned as it is, unless `refresh`
    upgrade: names of packages whose version is chosen again; ``base`` for the base image, ``*`` for all
    refresh: find out again what is no longer available
    find_conflicts: returns the conflicts between the Python packages of the image, by their names; called early
    commit_hints: source file → where the user changes its commit (`envbuild.lock.commit_origin`)

    Raises InputError with all inputs that are not available, after everything else was fetched into the store (all of
    it if the site configuration can fix the rest: a mistake in the spec is reported before large files are fetched);
    SpecError, ConflictError, EngineError (the store).
    """
    waiver_rows = tuple(dict(waiver) for waiver in waivers)
    components = request.spec.get("components")
    if previous and previous.inputs == request.digest():
        check_upgrades(previous, upgrade, components)  # at once, where the packages are known already
        if not upgrade and not refresh and previous.waivers == waiver_rows:
            check_versions(request, previous)
            return previous
    previous = None if EVERYTHING in upgrade else previous
    work = LockMaker(request, site, store, reporter, previous, upgrade, refresh, find_conflicts, commit_hints or {})
    lock = replace(work.run(), waivers=waiver_rows)
    pending_archives.remove_pending(store, lock.sources)
    check_upgrades(lock, upgrade, components)
    check_versions(request, lock)
    return replace(lock, versions=component_versions(request, lock))


@dataclass(slots=True)
class LockMaker:
    """One run of locking.

    previous: the lock whose versions are preferred, except those in `upgrade`
    errors: the errors of the parts
    resolved: the inputs that parts with errors found
    """

    request: LockRequest
    site: Site
    store: Store
    reporter: Reporter
    previous: Lock | None
    upgrade: frozenset[str]
    refresh: bool
    find_conflicts: python.FindConflicts
    commit_hints: Mapping[str, str] = field(default_factory=dict)
    errors: list[EnvbuildError] = field(default_factory=list)
    resolved: list[Input] = field(default_factory=list)
    transport: Transport = field(init=False)
    transfer: Transfer = field(init=False)

    def __post_init__(self) -> None:
        self.transport = Transport(self.site.network())
        self.transfer = Transfer(self.transport, self.store)

    @property
    def distribution(self) -> Distribution:
        return find_distribution(self.request.distribution or self.request.base)

    @property
    def upgraded(self) -> frozenset[str]:
        """`upgrade` in the normalized spelling of Python packages."""
        return frozenset(str(canonicalize_name(name)) for name in self.upgrade)

    def run(self) -> Lock:
        """Return the lock without the fields that are derived from it. Raises as `make_lock`."""
        base = self.attempt(self.lock_base_image) if is_image(self.request.base) else None
        packages, python_lock = self.lock_packages(base)
        sources = self.attempt(self.lock_all_sources)
        if packages is None or python_lock is None or sources is None or self.errors:
            self.resolved += found_inputs(base, packages, python_lock, sources)
            self.fetch_resolved()
            raise combine_errors(self.errors)
        return assemble(self.request, self.distribution.name, base, packages, python_lock, sources)

    def lock_packages(self, base: LockedBase | None) -> tuple[debian.DebianLock | None, PythonFiles | None]:
        """Lock the Debian and the Python packages.

        Without the requested `base` nothing can be resolved on top of it; other missing inputs are reported too.
        """
        request, on_image = self.request, is_image(self.request.base)
        if on_image and base is None:
            self.reporter.info(f"the packages of {request.image} wait for its base image")
            self.attempt(self.query_archives)
            self.attempt(lambda: vendor_indexes(request.indexes, self.site, self.transport))
            return None, None
        packages = self.attempt(lambda: self.lock_debian(base))
        number = full_python(request.python, packages.units.values() if packages and not on_image else ())
        return packages, self.attempt(lambda: self.lock_python(number, base))

    def attempt(self, part: Callable[[], Part]) -> Part | None:
        """Return the result of `part`; record its error for the end."""
        try:
            return part()
        except (InputError, ConflictError, SpecError) as error:
            self.errors.append(error)
            return None

    def fetch_resolved(self) -> None:
        """Download what is resolved, so that only missing inputs remain to be fetched; a failed download is one too.

        A mistake in the spec is reported without that.
        """
        from envbuild.lock.fetch import fetch_inputs, report_already_cached

        pending_archives.record_pending(
            self.store, (entry for entry in self.resolved if isinstance(entry, SourceFile) and not entry.git)
        )
        if not fixable_in_site_config(self.errors):
            return
        wanted = {entry.sha256: entry for entry in self.resolved if not self.store.has_blob(entry.sha256)}
        try:
            fetch_inputs(self.request.image, list(wanted.values()), self.store, self.site, self.reporter)
        except EnvbuildError as error:
            self.errors.append(error)
        report_already_cached(self.request.image, self.resolved, self.store, self.site, self.reporter, self.errors)

    def debian_names(self) -> dict[str, tuple[str, ...]]:
        """Return unit → names of its Debian packages.

        On a base image, which has its own packages, those of every image are run-time packages.
        """
        names = {name: unit.debian for name, unit in self.request.units.items()}
        if is_image(self.request.base):
            common = names.get(unit_names.BASE, ())
            names = {unit_names.BASE: (), unit_names.DEBIAN: (), **names}
            runtime = tuple(sorted({*names[unit_names.DEBIAN], *common}))
            names |= {unit_names.BASE: (), unit_names.DEBIAN: runtime}
        return names

    def lock_base_image(self) -> LockedBase:
        """Lock the base image."""
        request, previous = self.request, self.previous
        reuse = previous is not None and not self.refresh and BASE not in self.upgrade
        try:
            return lock_base(
                request.base,
                request.arch,
                self.site,
                self.transport,
                self.transfer,
                self.store,
                self.reporter,
                previous=previous.base_image if previous and reuse else None,
                distribution=self.distribution.name,
                python=request.python,
                promised=request.promised,
                where=request.where,
            )
        except (InputError, ConflictError, SpecError) as error:
            raise error.at(request.where.get(PLACE, "")) from None

    def query_archives(self) -> None:
        """Query every archive and repository of Debian packages, to report those that are missing."""
        fresh = self.refresh or bool(self.upgrade)
        opening = AptSetup(
            self.distribution, self.request.arch, self.site, self.store, self.transport, self.reporter, fresh
        )
        opening.apt(self.request.repositories)

    def lock_debian(self, base: LockedBase | None) -> debian.DebianLock:
        """Lock the Debian packages. The apt sources of a base image are not used."""
        names, excluded = self.debian_names(), self.upgrade | self.upgraded
        request = debian.DebianRequest(
            self.distribution,
            self.request.arch,
            names,
            self.request.repositories,
            installed=base.status if base else None,
            prefer={
                file.name: file.version
                for file in (self.previous.debian.values() if self.previous else ())
                if file.name not in excluded
            },
            refresh=self.refresh or bool(self.upgrade),
            replaces={name: unit.replaces for name, unit in self.request.units.items() if unit.replaces},
            where={**self.request.where, **{name: self.request.unit_place(name) for name in names}},
            askers=self.request.askers,
        )
        return debian.resolve(
            request, self.site, self.store, self.reporter, transport=self.transport, resolved=self.resolved
        )

    def lock_python(self, number: str, base: LockedBase | None) -> PythonFiles:
        """Lock the Python packages for Python `number`, and the uv that installs them."""
        request, previous, glibc = self.request, self.previous, self.distribution.glibc
        vendors, without_mirror = reachable_indexes(request.indexes, self.site, self.transport)
        with self.store.workdir() as workdir:
            self.reporter.start("python", "resolving Python packages")
            try:
                platform = choose_files.uv_platform(request.arch, glibc)
                choice = choose_files.FileChooser(
                    number,
                    choose_files.wheel_tags(request.python, request.arch, glibc),
                    PackageIndex(self.transport, self.site.python()),
                    self.transfer,
                    vendors,
                )
                work = python.PythonResolution(
                    Resolver(Uv(self.site, number, platform, workdir, self.store.root / "uv", vendors)),
                    choice,
                    earlier_versions(previous, self.upgraded),
                    present=base.image.python if base else {},
                    lacking={
                        str(canonicalize_name(name)): f"of {index.origin}"
                        for index in request.indexes
                        for name in index.packages
                        if index.origin in without_mirror
                    },
                    report=self.reporter.info,
                    find_conflicts=self.find_conflicts,
                    before=[InputError.of(findings) for findings in without_mirror.values()],
                )
                reuse = previous is not None and "uv" in previous.tools and "uv" not in self.upgraded
                tool = Pin("uv", previous.tools["uv"] if previous and reuse else uv_version(), frozenset())
                try:
                    return work.lock(request.units), choice.wheel(tool)
                except EnvbuildError:
                    with suppress(EnvbuildError):
                        self.resolved.append(choice.wheel(tool))
                    self.resolved += work.found()
                    raise
            finally:
                self.reporter.finish("python")

    def lock_all_sources(self) -> dict[str, SourceFile]:
        """Lock the archives and commits."""
        units = self.request.units.values()
        known = self.previous.sources if self.previous else {}
        if not self.refresh and EVERYTHING not in self.upgrade:
            known = {**pending_archives.read_pending(self.store), **known}
        return lock_sources(
            self.site,
            self.transport,
            self.transfer,
            self.store,
            self.reporter,
            [archive for unit in units for archive in unit.archives],
            [source for unit in units for source in unit.git],
            {name: file for name, file in known.items() if name not in self.upgrade},
            where=self.request.source_places(),
            commit_hints=self.commit_hints,
            resolved=self.resolved,
        )


def full_python(python_version: str, units: Iterable[Iterable[DebianFile]]) -> str:
    """Return ``3.13`` → ``3.13.5``, the version in the image's Debian packages, if they contain it."""
    for files in units:
        for file in files:
            if file.name == f"python{python_version}" and (match := re.match(r"\d+\.\d+\.\d+", file.version)):
                return match[0]
    return python_version


def earlier_versions(lock: Lock | None, upgraded: frozenset[str]) -> dict[str, dict[str, str]]:
    """Return unit → {package: version} of a lock, without `upgraded`; sdists have the key ``UNIT sdists``."""
    found: dict[str, dict[str, str]] = {}
    for name, unit in lock.units.items() if lock else ():
        for key, files in ((name, unit.python), (f"{name} sdists", unit.sdists)):
            entries = [lock.python_files[file] for file in files] if lock else []
            found[key] = {entry.name: entry.version for entry in entries if entry.name not in upgraded}
    return found
