"""The Debian half of a lock: base and units resolved with apt, every package named with archive, path and sha256.

Ubuntu's packages are Debian packages too; so are those of vendors' repositories.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from envbuild.bases import Distribution
from envbuild.console import Talk
from envbuild.errors import ConflictError, EnvbuildError, Finding, InputError
from envbuild.fields import nearest
from envbuild.lock.apt import Apt, AptFailed
from envbuild.lock.archives import Opening
from envbuild.lock.lacking import WrongInput, together
from envbuild.lock.lockfile import DebianFile
from envbuild.lock.packages import Package, Packages, essential, installed_names, status
from envbuild.lock.standin import StandIn, needed
from envbuild.lock.transport import Transport
from envbuild.recipe import AptRepository
from envbuild.site import Site
from envbuild.store import Store
from envbuild.supply import Input

LIKENESS = 0.85  # of a name that may be meant: most names of an archive share their beginning with many others
URI = re.compile(r"'[^']+' (?P<file>\S+) (?P<size>\d+) SHA256:(?P<sha256>[0-9a-f]{64})\s*")


@dataclass(frozen=True, slots=True)
class DebianLock:
    """What apt chose: unit → files, sorted by file name; the files of the base that are unpacked first; the archive's
    date; unit → the names that were asked for and are not there already, sorted; unit → the packages
    (``libucx0=1.20.1+envbuild``) that it has in name only.
    """

    units: Mapping[str, tuple[DebianFile, ...]]
    essential: tuple[str, ...]
    released: int
    requested: Mapping[str, tuple[str, ...]]
    replaced: Mapping[str, tuple[str, ...]]


def resolve(
    distribution: Distribution,
    arch: str,
    units: Mapping[str, Iterable[str]],
    site: Site,
    store: Store,
    talk: Talk,
    *,
    repositories: Iterable[AptRepository] = (),
    installed: str | None = None,
    transport: Transport | None = None,
    prefer: Mapping[str, str] | None = None,
    refresh: bool = False,
    resolved: list[Input] | None = None,
    replaces: Mapping[str, Iterable[str]] | None = None,
    where: Mapping[str, str] | None = None,
    askers: Mapping[str, str] | None = None,
) -> DebianLock:
    """Resolve `units` (name → package names; ``base`` among them): the base from nothing, every other unit on top of
    it. With `installed`, dpkg's status file of an image that the base is taken from, the base has no packages of its
    own, and what is installed there is asked of nobody.

    The packages of vendors' `repositories` are open to every unit but the base. apt takes the highest version wherever
    it is, so that a vendor's newer one wins over the distribution's (DOCA's rdma-core is meant to). `prefer` (package →
    version) is kept where the archives still have it. `replaces` (unit → ``libucx0=1.20.1``) are packages that need
    not come, because something else is in their place; apt takes the real one where that is too old for what depends
    on it. `where` (unit or layer → place in the spec) and `askers` (package of the unit ``debian`` → layer) are for
    what cannot be had. Raises InputError (archives that cannot be read, WrongInput) and ConflictError (packages that
    cannot be installed together), after all units that can be resolved without what is missing were: `resolved` gets
    their files.
    """
    repositories, resolved, where = tuple(repositories), [] if resolved is None else resolved, where or {}
    opening = Opening(distribution, arch, site, store, transport or Transport(site), talk, refresh)
    apt, findings = opening.open(repositories)
    if apt is None:
        raise InputError.of(findings)
    packages = Packages(apt.lists())
    present = installed_names(installed or "")
    wanted = {name: [item for item in names if item not in present] for name, names in units.items()}
    unknown = _unknown_names(packages, wanted)
    if unknown and not findings:
        archives = [distribution.family.capitalize(), *(item.origin for item in repositories)]
        raise WrongInput.of(_no_package(packages, _asked(unknown, askers or {}), archives, where))
    if unknown:
        read = {source.archive for source in apt.sources}
        closed = [item.origin for item in repositories if item.origin not in read]
        findings += _misspelt(packages, _asked(unknown, askers or {}), closed, where)
    with store.workdir() as workdir:
        waiting = frozenset(unknown)
        work = Work(apt, packages, workdir, dict(prefer or {}), talk, where, waiting, partial=bool(findings))
        status_file = workdir / "status"
        base = work.attempt("base", lambda: work.base(wanted.get("base", ()))) if installed is None else []
        status_file.write_text(status(base) if installed is None else installed)
        others = [name for name in wanted if wanted[name] and (name != "base" or installed is not None)]
        if installed is None and not base:  # there is nothing that they could stand on
            others = []

        stands = {
            name: [StandIn.of(text) for text in texts if text.partition("=")[0] not in present]
            for name, texts in (replaces or {}).items()
        }

        def one(name: str) -> list[Package]:
            known = status_file
            if stands.get(name):
                known = workdir / f"status-{name}"
                known.write_text(status_file.read_text() + "".join(stand.status(arch) for stand in stands[name]))
            return work.attempt(name, lambda: work.install(name, wanted[name], known))

        with ThreadPoolExecutor(2) as pool:
            chosen = list(pool.map(one, others))
    if findings or work.errors:
        resolved += dict.fromkeys(file for chosen_of in (base, *chosen) for file in _files(chosen_of))
        raise together([*([InputError.of(findings)] if findings else []), *work.errors])
    found = dict(zip(others, chosen, strict=True))
    if installed is None:
        found["base"] = base
    return DebianLock(
        {name: _files(found.get(name, ())) for name in units},
        tuple(file.file for file in _files(essential(base))),
        apt.released(),
        {name: tuple(sorted(set(items))) for name, items in wanted.items()},
        {name: tuple(str(stand) for stand in needed(found.get(name, ()), items)) for name, items in stands.items()},
    )


@dataclass(frozen=True, slots=True)
class Work:
    """One resolution. `where`: unit → place in the spec. `partial`: some package lists are missing, and units in
    `waiting` ask for what none of the others has. `errors` is what units could not have."""

    apt: Apt
    packages: Packages
    workdir: Path
    prefer: dict[str, str]
    talk: Talk
    where: Mapping[str, str]
    waiting: frozenset[str] = frozenset()
    partial: bool = False
    errors: list[EnvbuildError] = field(default_factory=list)

    def attempt(self, unit: str, part: Callable[[], list[Package]]) -> list[Package]:
        """What `part` chooses for a unit; nothing where that cannot be."""
        try:
            if unit not in self.waiting:
                return part()
        except ConflictError as error:
            if not self.partial or unit == "base":
                self.errors.append(error.at(self.where.get(unit, "")))
                return []
        self.talk.say(f"the Debian packages of '{unit}' wait for the package repositories that cannot be read")
        return []

    def base(self, names: Iterable[str]) -> list[Package]:
        """The packages of a base, from nothing: the essential ones, apt, and `names`."""
        asked = ["?essential", "apt", *names]
        found = self.install("base", asked, None)
        merged = "usr-is-merged"
        if any(package.name == "usrmerge" for package in found) and merged in self.packages.stanzas:
            # apt takes the first of "usrmerge | usr-is-merged", which converts an old system with the help of perl; a
            # tree that begins with /usr merged needs the second one only.
            found = self.install("base", [*asked, merged], None)
        return found

    def install(self, unit: str, names: Iterable[str], installed: Path | None) -> list[Package]:
        """The packages that `names` need beside what is `installed` (a status file; None: nothing, and only the
        distribution's own archives are asked). Raises ConflictError."""
        arguments = ["install", "--yes", "--no-remove", "--print-uris", *names]
        preferences = self.workdir / f"preferences-{unit}"
        preferences.write_text(
            # Above the priority of every release (500, 990), below the one that allows downgrades (1000):
            # apt_preferences(5).
            "".join(
                f"Package: {name}\nPin: version {version}\nPin-Priority: 995\n\n"
                for name, version in self.prefer.items()
            )
        )
        try:
            text = self.apt.get(*arguments, status=installed, preferences=preferences, plain=installed is None)
        except AptFailed as first:
            if not self.prefer:
                raise _conflict(unit, str(first)) from None
            self.talk.say(f"{unit}: the locked versions no longer fit together; Debian packages are resolved anew")
            try:
                text = self.apt.get(*arguments, status=installed, plain=installed is None)
            except AptFailed as second:
                raise _conflict(unit, str(second)) from None
        chosen = []
        for line in text.splitlines():
            if not line.startswith("'"):
                continue
            match = URI.fullmatch(line)
            package = self.packages.find(unquote(match["file"].partition("_")[0]), match["sha256"]) if match else None
            if package is None:
                file = line.split()[1] if match is None else match["file"]
                raise InputError(
                    f"apt chose {file}, which the package lists do not hold with a sha256",
                    hint="envbuild lock --refresh",
                )
            chosen.append(package)
        return chosen


def _files(packages: Iterable[Package]) -> tuple[DebianFile, ...]:
    files = [
        DebianFile(
            file=package.fields["Filename"].rpartition("/")[2],
            name=package.name,
            version=package.version,
            archive=package.archive,
            path=package.fields["Filename"].removeprefix("./"),
            size=int(package.fields["Size"]),
            sha256=package.fields["SHA256"],
        )
        for package in packages
    ]
    return tuple(sorted(files, key=lambda file: file.file))


def _unknown_names(packages: Packages, units: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Unit → the names that it asks for and that no archive has."""
    found: dict[str, list[str]] = {}
    for unit, names in units.items():
        for name in names:
            plain = re.split(r"[:=/]", name)[0]
            if plain not in packages.stanzas and not packages.provided(plain):
                found.setdefault(unit, []).append(plain)
    return found


def _asked(unknown: Mapping[str, list[str]], askers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(who asks, name): the unit, or of the run-time packages, which many layers ask for together, the layer."""
    layers = {re.split(r"[:=/]", text)[0]: layer for text, layer in askers.items()}
    for unit, names in unknown.items():
        for name in names:
            yield layers.get(name, unit) if unit == "debian" else unit, name


def _no_package(
    packages: Packages, unknown: Iterable[tuple[str, str]], archives: Sequence[str], where: Mapping[str, str]
) -> Iterator[Finding]:
    """A finding for each name that none of `archives` has (the distribution's name, then the repositories' origins)."""
    what = f"the {archives[0]} archive has no package"
    if len(archives) > 1:
        what = f"neither the {archives[0]} archive nor {', '.join(archives[1:])} has a package"
    for asker, name in unknown:
        near = nearest(name, _alike(packages, name), LIKENESS)
        hint = f"did you mean '{near}'?" if near else "search for its name: apt-cache search WORD"
        yield Finding(f"{what} '{name}' (asked for by {asker})", where.get(asker, ""), hint)


def _misspelt(
    packages: Packages, unknown: Iterable[tuple[str, str]], closed: Sequence[str], where: Mapping[str, str]
) -> Iterator[Finding]:
    """A finding for each unknown name that is nearly a known one. Repositories that cannot be read, `closed`, may have
    it: they give most of the names that are unknown then, so that only a letter or two may be otherwise."""
    for asker, name in unknown:
        if near := nearest(name, _alike(packages, name), LIKENESS):
            message = f"'{name}' (asked for by {asker}) is perhaps misspelt: no archive that can be read has it"
            others = " or ".join(closed) or "what cannot be read"
            yield Finding(message, where.get(asker, ""), f"did you mean '{near}'? Else leave it: {others} may have it")


def _alike(packages: Packages, name: str) -> list[str]:
    """Known names that `name` may be meant for: not all of tens of thousands, but those with its first letter."""
    return sorted(known for known in packages.names() if known[:1] == name[:1])


def _conflict(unit: str, text: str) -> EnvbuildError:
    return ConflictError(
        f"the Debian packages of '{unit}' cannot be installed together:\n{text}",
        hint="remove one of them from the spec or recipe",
    )
