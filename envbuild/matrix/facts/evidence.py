"""Evidence: the components that a row knows something about, and the values of them.

A row that binds is not yet evidence. ``torch: "*"`` names no version: it is evidence only where the source asserts that
all are compatible. ``torch: ">=2.0"`` is evidence of the versions that its source knew, not of later ones. A condition
that holds for an absent component, too, states nothing about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations

from envbuild.matrix.facts import version
from envbuild.matrix.facts.atoms import ABSENT, Atom
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.model import Fact

OPEN = (">=", ">", "!=", "any")  # operators that allow every later version
NAMELESS = ("any", "!=")  # operators that name no version which is meant
COMPATIBLE = "compatible"  # what a source may assert


def evidence_components(matrix: FactTable, row: int, assignment: Sequence[int]) -> set[int]:
    """Return the numbers of the components about whose values in an assignment a row that holds is evidence."""
    return {number for number, mask in evident_values(matrix, row).items() if assignment[number] & mask}


def evident_values(matrix: FactTable, row: int) -> Mapping[int, int]:
    """Return component → the values of which a row is evidence."""
    known = matrix.caches.evidence
    if row not in known:
        known[row] = _evident_values(matrix, row)
    return known[row]


def evident_pairs(matrix: FactTable) -> Mapping[tuple[int, int], Sequence[int]]:
    """Return the pairs of components of which some row is evidence, with these rows."""
    if matrix.caches.related is None:
        found: dict[tuple[int, int], list[int]] = {}
        for row in range(len(matrix.rows)):
            for pair in combinations(sorted(evident_values(matrix, row)), 2):
                found.setdefault(pair, []).append(row)
        matrix.caches.related = found
    return matrix.caches.related


def _evident_values(matrix: FactTable, row: int) -> Mapping[int, int]:
    """Compute `evident_values`."""
    line, fact = matrix.rows[row], matrix.fact(row)
    found: dict[int, int] = {}
    if fact.default and not fact.question:  # an assumption
        return found
    for numbers, condition in ((line.when, True), (line.then, False)):
        for atom in (matrix.atoms[at] for at in numbers):
            if condition and atom.sure & ABSENT:
                continue
            number, every = atom.component, matrix.full[atom.component] & ~ABSENT
            if fact.kind == "forbids" and not condition:  # states nothing about the values that it does not exclude
                found[number] = atom.sure & every
            elif names_no_value(atom) and fact.asserts != COMPATIBLE and (not condition or not line.then):
                continue
            elif is_open(atom) and matrix.components[number].kind != "name":
                found[number] = _values_up_to(matrix, fact, number)
            else:
                found[number] = every
    return found


@lru_cache(maxsize=1 << 13)
def _all_operators(terms: str, operators: tuple[str, ...]) -> bool:
    """Return whether all operators of some alternative of a constraint are among `operators`."""
    return any(all(term.partition(" ")[0] in operators for term in line.split("\t")) for line in terms.split("\n"))


def is_open(atom: Atom) -> bool:
    """Return whether a constraint allows every later version."""
    return _all_operators(atom.terms, OPEN)


def names_no_value(atom: Atom) -> bool:
    """Return whether a constraint is ``*``, or only excludes values."""
    return _all_operators(atom.terms, NAMELESS)


def _values_up_to(matrix: FactTable, fact: Fact, number: int) -> int:
    """Return the values of a component that the source of a fact knew."""
    name = matrix.components[number].name
    end = fact.known_to.get(name) or _end_at(matrix.known_to.get(name, {}), fact.source.seen)
    if not end:
        return matrix.full[number] & ~ABSENT
    known = matrix.caches.ends
    if (number, end) not in known:
        values = matrix.values[number]
        known[number, end] = sum(2 << at for at, value in enumerate(values) if _is_up_to(value, end))
    return known[number, end]


def _is_up_to(value: str, end: str) -> bool:
    if not version.is_comparable(value):
        return True
    return version.compare(value, "<=", end) is not False


def _end_at(ends: Mapping[str, str], day: str) -> str:
    """Return the newest version of that day; of a day before all that are recorded, that of the first."""
    return next((ends[date] for date in sorted(ends, reverse=True) if date <= day), ends[min(ends)] if ends else "")
