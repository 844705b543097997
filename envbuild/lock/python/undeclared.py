"""Requirements of wheels that their metadata does not state: an index resolves without them, and the import fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet

from envbuild.core.errors import ConflictError
from envbuild.lock.python.pins import Pin


@dataclass(frozen=True, slots=True)
class Undeclared:
    """Versions `versions` of `package` need `needs` of package `other`, if the image has that."""

    package: str
    versions: SpecifierSet
    other: str
    needs: SpecifierSet
    older: str  # the constraint that keeps these versions away


# pyarrow 26.0.0 and 26.0.1 raise "pyarrow requires NumPy 2.0 or newer, found 1.25.2" at the import; 18.1.0 to 25.0.1
# work with 1.25.2 (measured, Python 3.11). Their METADATA requires no numpy.
UNDECLARED = (Undeclared("pyarrow", SpecifierSet(">=26"), "numpy", SpecifierSet(">=2"), "pyarrow<26"),)


def unmet(pins: Mapping[str, Pin], present: Mapping[str, str]) -> tuple[Undeclared, ...]:
    """Return the requirements that a resolution does not satisfy. `present`: name → version of what it does not pin."""
    found = {**{name: pin.version for name, pin in pins.items()}, **present}
    return tuple(
        rule
        for rule in UNDECLARED
        if rule.package in pins
        and rule.versions.contains(pins[rule.package].version, prereleases=True)
        and rule.other in found
        and not rule.needs.contains(found[rule.other], prereleases=True)
    )


def conflict(rule: Undeclared, pins: Mapping[str, Pin], present: Mapping[str, str]) -> ConflictError:
    """Return the error for an image whose requirements leave no older version of the package."""
    has = present.get(rule.other) or pins[rule.other].version
    return ConflictError(
        f"{rule.package} {pins[rule.package].version} needs {rule.other}{rule.needs}, which its metadata does not "
        f"state, and the image has {rule.other} {has}",
        hint=f"write {rule.older}, or {rule.other}{rule.needs}, under python-packages",
    )
