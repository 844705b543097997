"""Dummy packages: dependencies of Debian packages that the image has from another source.

Open MPI of Debian 13 depends on Debian's UCX, which adds 240 MB of AMD's libraries and LLVM; an image that compiles
UCX itself uses none of it. dpkg's database gets a package of the same name without contents, as Debian's equivs makes
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from envbuild.lock.debian.package_lists import Package, alternatives

# Marks the package as envbuild's; higher than the plain version, so that "libucx0 (>= 1.20.1)" is satisfied.
SUFFIX = "+envbuild"


@dataclass(frozen=True, slots=True)
class DummyPackage:
    """A package without contents: `version` is the version of the replacement of package `name`, with SUFFIX."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}={self.version}"

    @classmethod
    def of(cls, text: str) -> DummyPackage:
        """Parse ``libucx0=1.20.1``, as recipes write it, or ``libucx0=1.20.1+envbuild``, as locks do."""
        name, _, version = text.partition("=")
        return cls(name, version.removesuffix(SUFFIX) + SUFFIX)

    def control(self, arch: str) -> tuple[str, ...]:
        """Return the lines of its control file (deb-control(5))."""
        return (
            f"Package: {self.name}",
            f"Version: {self.version}",
            f"Architecture: {arch}",
            "Multi-Arch: same",
            "Maintainer: envbuild",
            # prose: keep (a file in images)
            "Description: stands for a library that this image has from its own build",
        )

    def status(self, arch: str) -> str:
        """Return the stanza of dpkg's status file that lists it as installed."""
        first, *rest = self.control(arch)
        return "\n".join([first, "Status: install ok installed", *rest]) + "\n\n"


def required_dummies(chosen: Sequence[Package], dummies: Iterable[DummyPackage]) -> list[DummyPackage]:
    """Return those that a chosen package depends on, and whose real package was not chosen."""
    names = {package.name for package in chosen}
    wanted = {
        name
        for package in chosen
        for key in ("Pre-Depends", "Depends")
        for group in alternatives(package.fields.get(key, ""))
        for name in group
    }
    return [dummy for dummy in dummies if dummy.name in wanted - names]
