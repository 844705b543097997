"""Debian packages in name only: what Debian's packages depend on and the image has from somewhere else.

Open MPI of Debian 13 depends on Debian's UCX, which brings 240 MB of AMD's libraries and LLVM; an image that compiles
UCX itself uses none of it. dpkg is told of a package of the same name without contents, as Debian's equivs makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from envbuild.lock.debian.package_lists import Package, alternatives

# Says whose it is; higher than the plain version, so that "libucx0 (>= 1.20.1)" is met.
SUFFIX = "+envbuild"


@dataclass(frozen=True, slots=True)
class DummyPackage:
    """One of them: `version` is that of what takes the place of package `name`, with SUFFIX."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}={self.version}"

    @classmethod
    def of(cls, text: str) -> DummyPackage:
        """From ``libucx0=1.20.1``, as a recipe says it, or ``libucx0=1.20.1+envbuild``, as a lock does."""
        name, _, version = text.partition("=")
        return cls(name, version.removesuffix(SUFFIX) + SUFFIX)

    def control(self, arch: str) -> tuple[str, ...]:
        """Lines of its control file (deb-control(5))."""
        return (
            f"Package: {self.name}",
            f"Version: {self.version}",
            f"Architecture: {arch}",
            "Multi-Arch: same",
            "Maintainer: envbuild",
            "Description: stands for a library that this image has from its own build",
        )

    def status(self, arch: str) -> str:
        """A stanza of dpkg's status file in which it is installed."""
        first, *rest = self.control(arch)
        return "\n".join([first, "Status: install ok installed", *rest]) + "\n\n"


def required_dummies(chosen: Sequence[Package], stands: Iterable[DummyPackage]) -> list[DummyPackage]:
    """Those that one of the chosen packages depends on, and that the real package was not chosen in place of."""
    names = {package.name for package in chosen}
    wanted = {
        name
        for package in chosen
        for key in ("Pre-Depends", "Depends")
        for group in alternatives(package.fields.get(key, ""))
        for name in group
    }
    return [stand for stand in stands if stand.name in wanted - names]
