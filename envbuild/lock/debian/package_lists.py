"""The package lists of a Debian archive, read in Python: the stanza of a resolved package, and the dependencies of the
essential packages.

Format: deb822 stanzas separated by empty lines (Debian policy 5.1); relations (policy 7.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from envbuild.lock.deb822 import parse_fields

NAME = re.compile(rb"(?:^|\n)Package: ([^\n]+)")
RELATION = re.compile(r"\s*([a-z0-9][a-z0-9+.-]+)")
NOT_INSTALLED = ("Filename", "Size", "MD5sum", "SHA1", "SHA256", "SHA512", "Description-md5")


@dataclass(frozen=True, slots=True)
class Package:
    """One stanza: its fields, and the archive that lists it (``debian:trixie/main``,
    ``apt:nvidia-cuda/ubuntu2204``)."""

    fields: dict[str, str]
    archive: str

    @property
    def name(self) -> str:
        return self.fields["Package"]

    @property
    def version(self) -> str:
        return self.fields["Version"]


class PackageLists:
    """The lists of several archives, the preferred one first. Lists are tens of megabytes, so only requested stanzas
    are parsed.
    """

    def __init__(self, lists: Iterable[tuple[str, Path]]) -> None:
        self.stanzas: dict[str, list[tuple[str, bytes]]] = {}
        for archive, path in lists:
            for stanza in path.read_bytes().split(b"\n\n"):
                if match := NAME.search(stanza):
                    self.stanzas.setdefault(match[1].decode("utf-8", "replace"), []).append((archive, stanza))

    def names(self) -> set[str]:
        """Return the names of all packages."""
        return set(self.stanzas)

    def of(self, name: str) -> Iterator[Package]:
        """Yield all versions of one package."""
        for archive, stanza in self.stanzas.get(name, ()):
            yield Package(parse_fields(stanza.decode("utf-8", "replace")), archive)

    def find(self, name: str, sha256: str) -> Package | None:
        """Return the package file with this digest; None if there is none."""
        return next((package for package in self.of(name) if package.fields.get("SHA256") == sha256), None)

    def is_provided(self, name: str) -> bool:
        """Return whether some package provides the virtual package `name`."""
        pattern = re.compile(rb"\nProvides:[^\n]*[ ,]" + re.escape(name.encode()) + rb"(?=[ ,\n(]|$)")
        return any(pattern.search(stanza) for versions in self.stanzas.values() for _, stanza in versions)


def alternatives(relation: str) -> list[list[str]]:
    """Parse ``a (>= 1) | b, c:any`` into [[a, b], [c]]."""
    groups = []
    for group in relation.split(","):
        names = [match[1] for part in group.split("|") if (match := RELATION.match(part))]
        if names:
            groups.append(names)
    return groups


def dpkg_status(packages: Iterable[Package]) -> str:
    """Return a dpkg status file that lists `packages` as installed."""
    stanzas = []
    for package in packages:
        lines = [f"{key}: {value}" for key, value in package.fields.items() if key not in NOT_INSTALLED]
        stanzas.append("\n".join([lines[0], "Status: install ok installed", *lines[1:]]) + "\n\n")
    return "".join(stanzas)


def essential_packages(packages: Iterable[Package]) -> list[Package]:
    """Return the essential packages among `packages`, apt, and all that they depend on: they must be unpacked before
    dpkg can configure anything, and before apt can put the rest into the right order (python3-minimal pre-depends on
    python3.13-minimal, which dpkg alone refuses in the order of names).
    """
    present = {package.name: package for package in packages}
    providers: dict[str, str] = {}
    for package in present.values():
        for names in alternatives(package.fields.get("Provides", "")):
            providers.setdefault(names[0], package.name)
    wanted: dict[str, Package] = {}
    waiting = [
        package for package in present.values() if package.fields.get("Essential") == "yes" or package.name == "apt"
    ]
    while waiting:
        package = waiting.pop()
        if package.name in wanted:
            continue
        wanted[package.name] = package
        for key in ("Pre-Depends", "Depends"):
            for names in alternatives(package.fields.get(key, "")):
                chosen = next((name for name in names if name in present), None)
                chosen = chosen or next((providers[name] for name in names if name in providers), None)
                if chosen:
                    waiting.append(present[chosen])
    return [wanted[name] for name in sorted(wanted)]
