"""The Debian half of a lock: base and units resolved with apt, every package named with archive, path and sha256."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from envbuild.console import Talk
from envbuild.errors import ConflictError, EnvbuildError, Finding, InputError, SpecError
from envbuild.lock.apt import Apt, AptFailed, open_apt
from envbuild.lock.lockfile import DebianFile
from envbuild.lock.packages import Package, Packages, essential, status
from envbuild.site import Site
from envbuild.store import Store

CODENAMES = {"12": "bookworm", "13": "trixie"}
GLIBC = {"12": (2, 36), "13": (2, 41)}
URI = re.compile(r"^'[^']+' (?P<file>\S+) (?P<size>\d+) SHA256:(?P<sha256>[0-9a-f]{64})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DebianLock:
    """What apt chose: unit → files, sorted by file name; the files of the base that are unpacked first; the archive's
    date.
    """

    units: Mapping[str, tuple[DebianFile, ...]]
    essential: tuple[str, ...]
    released: int


def release(base: str) -> str:
    """The Debian release number of a base (``debian:13`` → 13). Raises SpecError for what is not built from Debian
    packages.
    """
    name, _, tag = base.partition(":")
    number = next((number for number, codename in CODENAMES.items() if tag in (number, codename)), "")
    if name != "debian" or not number:
        known = ", ".join(f"debian:{number}" for number in CODENAMES)
        raise SpecError(f"the base '{base}' cannot be locked", hint=f"write one of: {known}")
    return number


def archives(base: str) -> tuple[str, ...]:
    """The archives of a base, the main one first."""
    codename = CODENAMES[release(base)]
    return f"debian:{codename}/main", f"debian:{codename}-updates/main", f"debian-security:{codename}-security/main"


def resolve(
    base: str,
    arch: str,
    units: Mapping[str, Iterable[str]],
    site: Site,
    store: Store,
    talk: Talk,
    *,
    prefer: Mapping[str, str] | None = None,
    refresh: bool = False,
) -> DebianLock:
    """Resolve `units` (name → package names; ``base`` among them): the base from nothing, every other unit on top of
    it.

    `prefer` (package → version) is kept where the archive still has it. Raises InputError (unknown package, unreachable
    archive) and ConflictError (packages that cannot be installed together).
    """
    places = {archive: site.places(archive)[1] for archive in archives(base)}
    if not places[archives(base)[0]]:
        raise InputError(
            "this machine's apt configuration names no Debian archive",
            hint="write into site.yaml:  mirrors: {debian: [ADDRESS], debian-security: [ADDRESS]}",
        )
    if not places[archives(base)[2]]:
        talk.warn("no place is known for Debian's security archive: the lock is made without its updates")
        del places[archives(base)[2]]
    apt = open_apt(site, store, arch, places, talk, refresh=refresh)
    packages = Packages(apt.lists())
    _check_names(packages, units)
    with store.workdir() as workdir:
        work = Work(apt, packages, workdir, dict(prefer or {}), talk)
        base_packages = work.install("base", ["?essential", "apt", *units.get("base", ())], None)
        installed = workdir / "status"
        installed.write_text(status(base_packages))
        others = [name for name in units if name != "base" and tuple(units[name])]
        with ThreadPoolExecutor(2) as pool:
            chosen = list(pool.map(lambda name: work.install(name, units[name], installed), others))
    found = {"base": base_packages, **dict(zip(others, chosen, strict=True))}
    return DebianLock(
        {name: _files(found.get(name, ())) for name in units},
        tuple(file.file for file in _files(essential(base_packages))),
        apt.released(),
    )


@dataclass(frozen=True, slots=True)
class Work:
    """One resolution."""

    apt: Apt
    packages: Packages
    workdir: Path
    prefer: dict[str, str]
    talk: Talk

    def install(self, unit: str, names: Iterable[str], installed: Path | None) -> list[Package]:
        """The packages that `names` need beside what is installed. Raises ConflictError."""
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
            text = self.apt.get(*arguments, status=installed, preferences=preferences)
        except AptFailed as first:
            if not self.prefer:
                raise _conflict(unit, str(first)) from None
            self.talk.say(f"{unit}: the locked versions no longer fit together; Debian packages are resolved anew")
            try:
                text = self.apt.get(*arguments, status=installed)
            except AptFailed as second:
                raise _conflict(unit, str(second)) from None
        chosen = []
        for match in URI.finditer(text):
            package = self.packages.find(match["file"].partition("_")[0], match["sha256"])
            if package is None:
                raise InputError(
                    f"apt chose {match['file']}, which the package lists do not hold", hint="envbuild lock --refresh"
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


def _check_names(packages: Packages, units: Mapping[str, Iterable[str]]) -> None:
    """Raises InputError with one finding for each package that no archive has."""
    from envbuild.fields import did_you_mean

    findings = []
    for unit, names in units.items():
        for name in names:
            plain = re.split(r"[:=/]", name)[0]
            if plain in packages.stanzas or packages.provided(plain):
                continue
            hint = did_you_mean(plain, (known for known in packages.names() if known[:1] == plain[:1]), "")
            hint = hint if hint.startswith("did you mean") else "search for its name: apt-cache search WORD"
            findings.append(Finding(f"the Debian archive has no package '{plain}' (asked for by {unit})", "", hint))
    if findings:
        raise InputError.of(findings)


def _conflict(unit: str, text: str) -> EnvbuildError:
    return ConflictError(
        f"the Debian packages of '{unit}' cannot be installed together:\n{text}",
        hint="remove one of them from the spec or recipe",
    )
