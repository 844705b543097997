"""Resolution of the packages of an image's units: the base from nothing, every other unit on top of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from envbuild.core.console import Reporter
from envbuild.core.errors import ConflictError, EnvbuildError, InputError
from envbuild.lock.debian.apt import Apt, AptError
from envbuild.lock.debian.dummy_packages import DummyPackage
from envbuild.lock.debian.package_lists import Package, PackageLists, dpkg_status
from envbuild.lock.unit_names import BASE

URI = re.compile(r"'[^']+' (?P<file>\S+) (?P<size>\d+) SHA256:(?P<sha256>[0-9a-f]{64})\s*")


@dataclass(frozen=True, slots=True)
class DebianResolution:
    """One resolution. `where`: unit → place in the spec. `partial`: some package lists are missing, and units in
    `waiting` require names that none of the others has. `errors`: of the units that cannot be resolved."""

    apt: Apt
    packages: PackageLists
    workdir: Path
    prefer: Mapping[str, str]
    reporter: Reporter
    where: Mapping[str, str]
    waiting: frozenset[str] = frozenset()
    partial: bool = False
    errors: list[EnvbuildError] = field(default_factory=list)

    def choose(
        self,
        wanted: Mapping[str, Sequence[str]],
        installed: str | None,
        arch: str,
        dummies: Mapping[str, Sequence[DummyPackage]],
    ) -> dict[str, list[Package]]:
        """Return unit → the packages that its `wanted` names need, the base's first; a unit without names has none.

        `installed` is as in a DebianRequest; `dummies` count as installed in the units that they are listed for.
        """
        chosen: dict[str, list[Package]] = {}
        others = [unit for unit, names in wanted.items() if names]
        if installed is None:
            chosen[BASE] = self.attempt(BASE, lambda: self.base(wanted.get(BASE, ())))
            installed = dpkg_status(chosen[BASE])
            # Without a base there is nothing to install them on.
            others = [unit for unit in others if unit != BASE] if chosen[BASE] else []
        known = self.workdir / "status"
        known.write_text(installed)

        def resolve_unit(unit: str) -> list[Package]:
            below = known
            if present := dummies.get(unit):
                below = self.workdir / f"status-{unit}"
                below.write_text(installed + "".join(dummy.status(arch) for dummy in present))
            return self.attempt(unit, lambda: self.install(unit, wanted[unit], below))

        with ThreadPoolExecutor(2) as pool:
            return {**chosen, **dict(zip(others, pool.map(resolve_unit, others), strict=True))}

    def attempt(self, unit: str, part: Callable[[], list[Package]]) -> list[Package]:
        """Return the packages that `part` chooses for a unit; none where it fails or the unit waits."""
        try:
            if unit not in self.waiting:
                return part()
        except ConflictError as error:
            if not self.partial or unit == BASE:
                self.errors.append(error.at(self.where.get(unit, "")))
                return []
        self.reporter.info(f"the Debian packages of '{unit}' wait for the package repositories that cannot be read")
        return []

    def base(self, names: Iterable[str]) -> list[Package]:
        """Return the packages of a base, from nothing: the essential ones, apt, and `names`."""
        names = ["?essential", "apt", *names]
        found = self.install(BASE, names, None)
        merged = "usr-is-merged"
        if any(package.name == "usrmerge" for package in found) and merged in self.packages.stanzas:
            # apt chooses the first of "usrmerge | usr-is-merged", which converts an old system with perl; a tree that
            # has /usr merged from the start needs the second one only.
            found = self.install(BASE, [*names, merged], None)
        return found

    def install(self, unit: str, names: Iterable[str], installed: Path | None) -> list[Package]:
        """Return the packages that `names` need beside the `installed` ones (a status file; None: nothing, and only the
        distribution's own archives are used). Raises ConflictError."""
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
        except AptError as first:
            if not self.prefer:
                raise _conflict_error(unit, str(first)) from None
            self.reporter.info(
                f"{unit}: the locked versions are no longer compatible; Debian packages are resolved again"
            )
            try:
                text = self.apt.get(*arguments, status=installed, plain=installed is None)
            except AptError as second:
                raise _conflict_error(unit, str(second)) from None
        return list(self.read_uris(text))

    def read_uris(self, text: str) -> Iterator[Package]:
        """Read the packages that ``apt-get --print-uris`` lists. Raises InputError for one that no list contains."""
        for line in text.split("\n"):
            if not line.startswith("'"):
                continue
            match = URI.fullmatch(line)
            package = self.packages.find(unquote(match["file"].partition("_")[0]), match["sha256"]) if match else None
            if package is None:
                file = line.split()[1] if match is None else match["file"]
                raise InputError(
                    f"apt chose {file}, which the package lists do not contain with a sha256",
                    hint="envbuild lock --refresh",
                )
            yield package


def _conflict_error(unit: str, text: str) -> EnvbuildError:
    return ConflictError(
        f"the Debian packages of '{unit}' cannot be installed together:\n{text}",
        hint="remove one of them from the spec or recipe",
    )
