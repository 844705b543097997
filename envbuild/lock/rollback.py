"""Archives that went back in time: a mirror that is out of date, or replays an old state with its right signature.

An archive's Release file is signed and has a date. The lock records it, so that the next lock can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable

from packaging.version import Version

from envbuild.core.text import human_list
from envbuild.lock.debian.version_order import version_key
from envbuild.lock.model import DebianFile, Lock, PythonFile

NAMED = 6  # packages that a warning lists


def rollback_warnings(old: Lock, new: Lock) -> list[str]:
    """Return one line for each archive whose Release file or packages are older than those of `old`, and one for Python
    packages that went back although the requirements are the same."""
    if (old.distribution, old.arch) != (new.distribution, new.arch):
        return []
    older: dict[str, list[str]] = {}
    for name, (was, now, archive) in older_debian(old.debian.values(), new.debian.values()).items():
        older.setdefault(archive, []).append(f"{name} {was} → {now}")
    # All dates have one form, so that their texts have their order.
    back = [archive for archive, date in new.releases.items() if date < old.releases.get(archive, "")]
    lines = []
    for archive in sorted({*older, *back}):
        facts = []
        if archive in back:
            facts.append(f"its Release file is of {new.releases[archive]}, the lock had one of {old.releases[archive]}")
        if archive in older:
            facts.append(f"older packages: {human_list(older[archive], NAMED)}")
        lines.append(f"{archive} went back in time: {'; '.join(facts)}; check the mirror before you keep this lock")
    if python := older_python(old, new):
        lines.append(f"the package index went back in time: older packages: {human_list(python, NAMED)}")
    return lines


def older_debian(before: Iterable[DebianFile], after: Iterable[DebianFile]) -> dict[str, tuple[str, str, str]]:
    """Return package → (version before, version now, archive) of those that are older now."""
    newest: dict[str, str] = {}
    for file in before:
        if file.name not in newest or version_key(file.version) > version_key(newest[file.name]):
            newest[file.name] = file.version
    return {
        file.name: (newest[file.name], file.version, file.archive)
        for file in after
        if file.name in newest and version_key(file.version) < version_key(newest[file.name])
    }


def older_python(old: Lock, new: Lock) -> list[str]:
    """Return ``name 2.0 → 1.0`` of packages that are older now, if the requirements did not change."""
    if old.inputs != new.inputs:
        return []
    was = _versions(old.python_files.values())
    now = _versions(new.python_files.values())
    return [f"{name} {was[name]} → {now[name]}" for name in sorted(was.keys() & now.keys()) if now[name] < was[name]]


def _versions(files: Iterable[PythonFile]) -> dict[str, Version]:
    """Return name → its newest version; what has no valid one is left out."""
    found: dict[str, Version] = {}
    for file in files:
        try:
            version = Version(file.version)
        except ValueError:
            continue
        found[file.name] = max(version, found.get(file.name, version))
    return found
