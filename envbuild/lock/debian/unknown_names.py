"""Names of Debian packages that no archive has: the unit or layer that requires them, and similar names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from envbuild.core.errors import Finding
from envbuild.core.yaml_reader import nearest
from envbuild.lock.debian.package_lists import PackageLists
from envbuild.lock.unit_names import DEBIAN

LIKENESS = 0.85  # of a name that may be meant: most names of an archive share their beginning with many others


def unknown_names(packages: PackageLists, units: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Return unit → the names that it requires and that no archive has."""
    found: dict[str, list[str]] = {}
    for unit, names in units.items():
        for name in names:
            plain = re.split(r"[:=/]", name)[0]
            if plain not in packages.stanzas and not packages.is_provided(plain):
                found.setdefault(unit, []).append(plain)
    return found


def find_requesters(unknown: Mapping[str, Sequence[str]], askers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (unit or layer that requires it, name): of the run-time packages, which many layers share, the layer."""
    layers = {re.split(r"[:=/]", text)[0]: layer for text, layer in askers.items()}
    for unit, names in unknown.items():
        for name in names:
            yield layers.get(name, unit) if unit == DEBIAN else unit, name


def no_package_findings(
    packages: PackageLists, unknown: Iterable[tuple[str, str]], archives: Sequence[str], where: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield a finding for each name that none of `archives` has (the distribution's name, then the repositories'
    origins)."""
    what = f"the {archives[0]} archive has no package"
    if len(archives) > 1:
        what = f"neither the {archives[0]} archive nor {', '.join(archives[1:])} has a package"
    for asker, name in unknown:
        near = nearest(name, _similar_names(packages, name), LIKENESS)
        hint = f"did you mean '{near}'?" if near else "search for its name: apt-cache search WORD"
        yield Finding(f"{what} '{name}' (required by {asker})", where.get(asker, ""), hint)


def misspelt_findings(
    packages: PackageLists, unknown: Iterable[tuple[str, str]], closed: Sequence[str], where: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield a finding for each unknown name that is nearly a known one.

    Repositories that cannot be read, `closed`, may have it: most of the names that are unknown then come from them, so
    that only a letter or two may differ.
    """
    for asker, name in unknown:
        if near := nearest(name, _similar_names(packages, name), LIKENESS):
            message = f"'{name}' (required by {asker}) is perhaps misspelt: no archive that can be read has it"
            others = " or ".join(closed) or "what cannot be read"
            yield Finding(
                message, where.get(asker, ""), f"did you mean '{near}'? Otherwise keep it: {others} may have it"
            )


def _similar_names(packages: PackageLists, name: str) -> list[str]:
    """Return known names that may be meant by `name`: of tens of thousands only those with its first letter."""
    return sorted(known for known in packages.names() if known[:1] == name[:1])
