"""The differences between two locks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from envbuild.lock.model import DebianFile, Lock, PythonFile, SourceFile


class Change(StrEnum):
    """The kind of a difference."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Difference:
    """A package, a source or the base image that two locks have differently.

    kind: base, debian, python or source
    before, after: versions; of a source its origin, of the base the begin of its digest. They are equal where only
        the content of the files is another one.
    """

    kind: str
    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def change(self) -> Change:
        """Return the kind of the difference."""
        return Change.CHANGED if self.before and self.after else Change.ADDED if self.after else Change.REMOVED

    def line(self) -> str:
        """Return the difference as one line: ``numpy 2.5.1 → 2.5.5``, ``+ click 8.5.1``, ``- six 1.17``."""
        label = f"{self.kind} {self.name}" if self.kind in ("source", "base") else self.name
        was, now = ", ".join(self.before), ", ".join(self.after)
        if self.kind == "base":
            return f"{label}: {was or 'none'} → {now or 'none'}"
        if self.change is not Change.CHANGED:
            return f"+ {label} {now}" if now else f"- {label} {was}"
        return f"{label} {now}: other content" if was == now else f"{label} {was} → {now}"

    def row(self) -> dict[str, Any]:
        """Return the difference as plain data for JSON."""
        return {
            "change": str(self.change),
            "kind": self.kind,
            "name": self.name,
            "before": list(self.before),
            "after": list(self.after),
        }


def find_differences(old: Lock | None, new: Lock) -> list[Difference]:
    """Return what two locks have differently: the base image first. Without an older lock, everything is added."""
    found = []
    was, now = (lock.base_image.digest[:12] if lock and lock.base_image else "" for lock in (old, new))
    if was != now:
        found.append(Difference("base", new.base, (was,) if was else (), (now,) if now else ()))
    for kind, before, after in (
        ("debian", _versions(old.debian.values() if old else ()), _versions(new.debian.values())),
        ("python", _versions(old.python_files.values() if old else ()), _versions(new.python_files.values())),
        ("source", _sources(old.sources.values() if old else ()), _sources(new.sources.values())),
    ):
        for name in sorted(before.keys() | after.keys()):
            one, other = before.get(name, {}), after.get(name, {})
            if one != other:
                found.append(Difference(kind, name, tuple(sorted(one)), tuple(sorted(other))))
    return found


def describe_changes(old: Lock, new: Lock) -> list[str]:
    """Return one line for each difference of two locks."""
    return [difference.line() for difference in find_differences(old, new)]


def summarize(differences: Iterable[Difference]) -> str:
    """Return how many entries are added, removed and changed, as text; empty if there are none."""
    found = list(differences)
    counts = {change: sum(item.change is change for item in found) for change in Change}
    return ", ".join(f"{count} {change}" for change, count in counts.items() if count)


def _versions(files: Iterable[DebianFile | PythonFile]) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for file in files:
        found.setdefault(file.name, {}).setdefault(file.version, []).append(file.sha256)
    return {name: {key: sorted(digests) for key, digests in versions.items()} for name, versions in found.items()}


def _sources(files: Iterable[SourceFile]) -> dict[str, dict[str, list[str]]]:
    return {file.file: {file.origin: [file.sha256]} for file in files}
