"""Python packages that remain as they were locked: of a unit whose requirements did not change, no package is resolved
again, and of the others only the files of packages that changed are searched.

The store has the answer of uv about each unit (`envbuild.lock.stored_results`). Its key is the whole query: the
requirements of the unit, the packages that are omitted, the version of Python, the platform, the indexes of the site
and of vendors, the newest releases that the facts know, and the version of uv. A package index has no state that one
request would return. So an answer is used in one case alone: if the lock has its versions already, and they still fit
the versions of the image. Each of them would be preferred, and so be chosen again. ``--refresh``, ``--fresh`` and
upgrades use no answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from envbuild.lock.model import Lock, PythonFile
from envbuild.lock.python.pins import Pin
from envbuild.lock.stored_results import StoredResults
from envbuild.lock.unit_names import TOOLS

KIND = "python"


@dataclass(frozen=True, slots=True)
class KeptUnits:
    """The Python packages of an older lock, of the same Python on the same machine.

    files: (name, version) → file that it has for units, without source distributions
    results: the answers of uv; None: none is used or stored
    context: what the answers about all units depend on, as plain data
    """

    files: Mapping[tuple[str, str], PythonFile] = field(default_factory=dict)
    results: StoredResults | None = None
    context: object = None

    def pins(
        self, unit: str, query: Mapping[str, object], before: Mapping[str, str], bound: Mapping[str, str]
    ) -> dict[str, Pin] | None:
        """Return the packages of a unit as they were locked; None if they must be resolved.

        query: what else the answer about the unit depends on
        before: name → version in the older lock
        bound: name → version that the unit must have, if it has that package
        """
        stored = self.results.read(KIND, self.key(unit, query)) if self.results and before else None
        answer = parse_answer(stored)
        if not answer or {name: version for name, (version, _) in answer.items()} != dict(before):
            return None
        if any(bound.get(name, version) != version for name, version in before.items()):
            return None
        found: dict[str, Pin] = {}
        for name, (version, via) in answer.items():
            file = self.files.get((name, version))
            if file is None:
                return None
            found[name] = Pin(name, version, frozenset({file.sha256}), via)
        return found

    def record(self, unit: str, query: Mapping[str, object], pins: Mapping[str, Pin]) -> None:
        """Store the answer about a unit."""
        if self.results and pins:
            answer = {name: [pin.version, pin.via] for name, pin in pins.items()}
            self.results.write(KIND, self.key(unit, query), answer)

    def key(self, unit: str, query: Mapping[str, object]) -> list[Any]:
        """Return the key of the answer about a unit."""
        return [self.context, unit, {name: value for name, value in query.items() if value}]

    def file(self, pin: Pin, origin: str) -> PythonFile | None:
        """Return the file of a package that the older lock has, if the index still lists it with that digest.

        origin: the vendor's index that the package comes from
        """
        file = self.files.get((pin.name, pin.version))
        return file if file and file.origin == origin and file.sha256 in pin.hashes else None

    def tool(self, name: str, version: str) -> PythonFile | None:
        """Return the file of a tool of builds that the older lock has."""
        return self.files.get((f"{TOOLS} {name}", version))


def locked_files(previous: Lock | None, distribution: str, arch: str, python: str) -> dict[tuple[str, str], PythonFile]:
    """Return (name, version) → file of a lock, if it is of this distribution, machine and Python; tools have the name
    ``tools NAME``."""
    if previous is None or (previous.distribution, previous.arch, previous.python) != (distribution, arch, python):
        return {}
    found = {}
    for name, unit in previous.units.items():
        for file in map(previous.python_files.__getitem__, unit.python):
            found[f"{TOOLS} {file.name}" if name == TOOLS else file.name, file.version] = file
    return found


def query_of(requirements: Iterable[str], omit: Mapping[str, str], devel: Iterable[str] = ()) -> dict[str, object]:
    """Return the query about one unit, as plain data; `devel`: requirements of builds that decide it, too."""
    return {"requirements": sorted(set(requirements)), "omit": dict(omit), "devel": sorted(set(devel))}


def parse_answer(value: Any) -> dict[str, tuple[str, str]]:
    """Return name → (version, users) in a value of JSON; nothing if it is not an answer."""
    try:
        found = {name: (version, via) for name, (version, via) in value.items()}
    except (AttributeError, TypeError, ValueError):
        return {}
    return found if all(isinstance(text, str) for pair in found.values() for text in pair) else {}
