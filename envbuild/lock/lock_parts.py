"""The parts of a lock: the base image, Debian packages, Python packages, sources. Each fails on its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import canonicalize_name

from envbuild.core.console import Reporter
from envbuild.core.distributions import PLACE, Distribution, find_distribution, is_image
from envbuild.core.errors import ConflictError, InputError, SpecError
from envbuild.core.store.store import Store
from envbuild.core.text import counted, human_list
from envbuild.lock import pending_archives, unit_names
from envbuild.lock.base_image.lock_base import LockedBase, lock_base
from envbuild.lock.base_image.own_images import NO_IMAGES, OwnImages
from envbuild.lock.debian import resolve as debian
from envbuild.lock.debian.apt_setup import AptSetup
from envbuild.lock.debian.debian_request import DebianLock, DebianRequest
from envbuild.lock.debian.repositories import RepositoryFinder
from envbuild.lock.git.commit_hint import CommitHint
from envbuild.lock.inputs import Input
from envbuild.lock.model import DebianFile, Lock, SourceFile
from envbuild.lock.preserved_debian import all_files, are_obtainable, preserve_debian, unlisted_files
from envbuild.lock.python import resolve as python
from envbuild.lock.request import LockRequest
from envbuild.lock.sources import lock_sources
from envbuild.lock.upgrades import BASE, EVERYTHING
from envbuild.net.download import Transfer
from envbuild.net.site import Site
from envbuild.net.transport import Transport

NAMED = 5  # packages in a message


@dataclass(slots=True)
class LockParts:
    """The parts of one run of locking.

    previous: the lock whose versions are preferred, except those in `upgrade`
    newest: Python package → the newest version that the facts know
    only: nothing but the Python packages in `upgrade` may change
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
    commit_hints: Mapping[str, CommitHint] = field(default_factory=dict)
    own: OwnImages = NO_IMAGES
    newest: Mapping[str, str] = field(default_factory=dict)
    only: bool = False
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
                prefixes=request.prefixes,
                where=request.where,
                folder=Path(request.folder),
                own=self.own,
            )
        except (InputError, ConflictError, SpecError) as error:
            raise error.at(request.where.get(PLACE, "")) from None

    def query_archives(self) -> None:
        """Query every archive and repository of Debian packages, to report those that are missing."""
        fresh = self.refresh or bool(self.upgrade)
        finder = RepositoryFinder(
            self.distribution, self.request.arch, self.site, self.store, self.transport, self.reporter, fresh
        )
        AptSetup(finder).apt(self.request.repositories)

    def lock_debian(self, base: LockedBase | None) -> DebianLock:
        """Lock the Debian packages. The apt sources of a base image are not used."""
        names, excluded = self.debian_names(), self.upgrade | self.upgraded
        request = DebianRequest(
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
        preserved = None
        if self.previous and not self.refresh and not excluded & {file.name for file in self.previous.debian.values()}:
            preserved = preserve_debian(self.previous, request, base.image if base else None)
        if preserved and self.only:
            return preserved
        if preserved and all(self.store.has_blob(file.sha256) for file in all_files(preserved)):
            self.reporter.info("the Debian packages remain as they were locked: all are in the store")
            return preserved
        found = debian.resolve(
            request, self.site, self.store, self.reporter, transport=self.transport, resolved=self.resolved
        )
        unlisted = unlisted_files(preserved, found) if preserved else ()
        if not (preserved and self.previous and unlisted):
            return found
        if not are_obtainable(unlisted, self.previous, self.store, self.site, self.transport):
            return found
        printed = human_list([f"{file.name} {file.version}" for file in unlisted], NAMED)
        self.reporter.info(
            f"{counted(len(unlisted), 'Debian package')} left the archive and remain in the lock: {printed}; "
            f"for newer ones: envbuild lock {self.request.image} --refresh"
        )
        return preserved

    @property
    def has_projects(self) -> bool:
        """Return whether Python packages of the image are projects in repositories, or wheels of the project."""
        return any(unit.projects or unit.wheels for unit in self.request.units.values())

    def lock_all_sources(self) -> dict[str, SourceFile]:
        """Lock the archives and commits."""
        units = self.request.units.values()
        known = self.previous.sources if self.previous else {}
        projects = [project for unit in units for project in unit.projects]
        chosen_again = {project.file for project in projects if project.name in self.upgraded}
        if not self.refresh and EVERYTHING not in self.upgrade:
            known = {**pending_archives.read_pending(self.store, self.site), **known}
        return lock_sources(
            self.site,
            self.transport,
            self.transfer,
            self.store,
            self.reporter,
            [archive for unit in units for archive in unit.archives],
            [source for unit in units for source in unit.git],
            {name: file for name, file in known.items() if name not in self.upgrade | chosen_again},
            projects=projects,
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
