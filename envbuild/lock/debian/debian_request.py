"""The request to apt for the packages of an image, and the choice of apt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from envbuild.core.distributions import Distribution
from envbuild.lock.debian.dummy_packages import DummyPackage
from envbuild.lock.model import DebianFile
from envbuild.spec.recipe import AptRepository


@dataclass(frozen=True, slots=True)
class DebianRequest:
    """The packages that an image requires of apt.

    `units`: name → package names, ``base`` among them.
    `repositories`: of vendors, open to every unit but the base. apt chooses the highest version of all sources, so
    that a vendor's newer one takes precedence over the distribution's (intended for DOCA's rdma-core).
    `installed`: dpkg's status file of the image that is the base. The base then has no packages of its own, and the
    packages that are installed there are not resolved.
    `prefer`: package → version, used where the archives still have it.
    `replaces`: unit → packages (``libucx0=1.20.1``) that are not installed, because the image has a replacement; apt
    chooses the real one where that is too old for a package that depends on it.
    `where`: unit or layer → place in the spec, and `askers`: package of the unit ``debian`` → layer, for findings.
    """

    distribution: Distribution
    arch: str
    units: Mapping[str, Sequence[str]]
    repositories: Sequence[AptRepository] = ()
    installed: str | None = None
    prefer: Mapping[str, str] = field(default_factory=dict)
    refresh: bool = False
    replaces: Mapping[str, Sequence[str]] = field(default_factory=dict)
    where: Mapping[str, str] = field(default_factory=dict)
    askers: Mapping[str, str] = field(default_factory=dict)

    def wanted(self, present: frozenset[str]) -> dict[str, list[str]]:
        """Return unit → the names that are not `present` (installed in the base image)."""
        return {unit: [name for name in names if name not in present] for unit, names in self.units.items()}

    def dummies(self, present: frozenset[str]) -> dict[str, list[DummyPackage]]:
        """Return unit → its dummy packages, without those whose real package is `present`."""
        return {
            unit: [DummyPackage.of(text) for text in texts if text.partition("=")[0] not in present]
            for unit, texts in self.replaces.items()
        }


@dataclass(frozen=True, slots=True)
class DebianLock:
    """The choice of apt: unit → files, sorted by file name; the files of the base that are unpacked first; the
    archive's date; unit → the requested names that the base image does not have, sorted; unit → its dummy packages
    (``libucx0=1.20.1+envbuild``); archive → date of its Release file.
    """

    units: Mapping[str, tuple[DebianFile, ...]]
    essential: tuple[str, ...]
    released: int
    requested: Mapping[str, tuple[str, ...]]
    replaced: Mapping[str, tuple[str, ...]]
    releases: Mapping[str, str] = field(default_factory=dict)
