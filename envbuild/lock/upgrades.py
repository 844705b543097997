"""The packages of a lock that can be upgraded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from packaging.utils import canonicalize_name

from envbuild.core.errors import ConflictError, Finding, SpecError
from envbuild.lock.diff import Change, Difference
from envbuild.lock.model import Lock

EVERYTHING = "*"  # in `upgrade`
BASE = "base"  # in `upgrade`: the image of a registry that the base is


def check_upgrades(lock: Lock, upgrade: Iterable[str], components: object = None, projects: Iterable[str] = ()) -> None:
    """Raise SpecError with every name in `upgrade` that the image does not have.

    components: component → its package, which the hint for the name of a layer contains
    projects: names of Python packages that are compiled from repositories
    """
    debian_names = {file.name for file in lock.debian.values()}
    known = debian_names | {file.name for file in lock.python_files.values()} | set(lock.sources)
    known |= set(projects)
    known |= {BASE} if lock.base_image else set()
    packages = (
        {str(name): str(package) for name, package in dict(components).items()}
        if isinstance(components, Mapping)
        else {}
    )
    findings = [
        Finding(f"the image has no package '{name}' to upgrade", hint=upgrade_hint(name, known, packages))
        for name in sorted(upgrade)
        if name != EVERYTHING and name not in known and str(canonicalize_name(name)) not in known
    ]
    if findings:
        raise SpecError.of(findings)


def upgrade_hint(name: str, known: Iterable[str], packages: Mapping[str, str], option: str = "--upgrade") -> str:
    """Return a hint with names of `known` that `name` may mean: the package of that component, the closest ones, or the
    components' packages. option: that `name` was given to"""
    import difflib

    names = sorted(known)
    if packages.get(name) in names:
        return f"the package of {name} is {packages[name]}: {option} {packages[name]}"
    close = difflib.get_close_matches(name.lower()[:100], names, n=3)
    close += [other for other in names if len(name) > 2 and name.lower() in other and other not in close]
    if close:
        first, *more = (f"'{other}'" for other in close[:5])
        return f"did you mean {', '.join([first, *more[:-1]])}{f' or {more[-1]}' if more else ''}?"
    examples = sorted(set(packages.values()) & set(names)) or names
    return f"its packages are {', '.join(examples[:8])}{' and others' if len(names) > len(examples[:8]) else ''}"


def check_only_moved(name: str, differences: Iterable[Difference], upgraded: frozenset[str]) -> None:
    """Raise ConflictError with everything that is changed in a lock of the image `name` beside the packages `upgraded`;
    what they newly require, or no longer require, is theirs."""
    others = [item for item in differences if item.change is Change.CHANGED and item.name not in upgraded]
    if others:
        raise ConflictError.of(
            Finding(
                f"{item.line()} would change as well, and --upgrade-package moves one package alone",
                hint=f"envbuild lock {name} --upgrade {' --upgrade '.join(sorted(upgraded))}",
            )
            for item in others
        )
