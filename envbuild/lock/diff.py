"""The differences between two locks, and the packages of a lock that can be upgraded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from packaging.utils import canonicalize_name

from envbuild.core.errors import Finding, SpecError
from envbuild.lock.model import DebianFile, Lock, PythonFile, SourceFile

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


def upgrade_hint(name: str, known: Iterable[str], packages: Mapping[str, str]) -> str:
    """Return a hint with names of `known` that `name` may mean: the package of that component, the closest ones, or the
    components' packages."""
    import difflib

    names = sorted(known)
    if packages.get(name) in names:
        return f"the package of {name} is {packages[name]}: --upgrade {packages[name]}"
    close = difflib.get_close_matches(name.lower()[:100], names, n=3)
    close += [other for other in names if len(name) > 2 and name.lower() in other and other not in close]
    if close:
        first, *more = (f"'{other}'" for other in close[:5])
        return f"did you mean {', '.join([first, *more[:-1]])}{f' or {more[-1]}' if more else ''}?"
    examples = sorted(set(packages.values()) & set(names)) or names
    return f"its packages are {', '.join(examples[:8])}{' and others' if len(names) > len(examples[:8]) else ''}"


def describe_changes(old: Lock, new: Lock) -> list[str]:
    """Return one line for each package or source that differs, after a line for the base image.

    ``numpy 2.5.1 → 2.5.5``, ``+ click 8.5.1``, ``- six 1.17``
    """
    was_base, base = (lock.base_image.digest[:12] if lock.base_image else "" for lock in (old, new))
    lines = []
    if was_base != base:
        lines.append(f"base {new.base}: {was_base or 'none'} → {base or 'none'}")
    for label, before, after in (
        ("", _versions(old.debian.values()), _versions(new.debian.values())),
        ("", _versions(old.python_files.values()), _versions(new.python_files.values())),
        ("source ", _sources(old.sources.values()), _sources(new.sources.values())),
    ):
        for name in sorted(before.keys() | after.keys()):
            was, now = before.get(name, {}), after.get(name, {})
            if was == now:
                continue
            if not was:
                lines.append(f"+ {label}{name} {', '.join(sorted(now))}")
            elif not now:
                lines.append(f"- {label}{name} {', '.join(sorted(was))}")
            elif was.keys() == now.keys():
                lines.append(f"{label}{name} {', '.join(sorted(now))}: other content")
            else:
                lines.append(f"{label}{name} {', '.join(sorted(was))} → {', '.join(sorted(now))}")
    return lines


def _versions(files: Iterable[DebianFile | PythonFile]) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for file in files:
        found.setdefault(file.name, {}).setdefault(file.version, []).append(file.sha256)
    return {name: {key: sorted(digests) for key, digests in versions.items()} for name, versions in found.items()}


def _sources(files: Iterable[SourceFile]) -> dict[str, dict[str, list[str]]]:
    return {file.file: {file.origin: [file.sha256]} for file in files}
