"""The components that facts may add to a request, so that all others can be left out of a search."""

from __future__ import annotations

from collections.abc import Iterable

from envbuild.matrix.facts.atoms import ABSENT, PRESENT_KINDS
from envbuild.matrix.facts.fact_table import HARDWARE, CompiledRow, FactTable

Call = tuple[frozenset[int], frozenset[int]]  # (components that must be present, components that may then be)


def reachable_components(matrix: FactTable, names: Iterable[str]) -> set[int]:
    """Return the numbers of `names` and of all that facts may add when these are present with any values: rows
    that require a component, or that hold only while a package is absent."""
    found = {matrix.number[name] for name in names}
    calls = find_calls(matrix)
    size = -1
    while size != len(found):
        size = len(found)
        for needs, added in calls:
            if needs <= found:
                found |= added
    return found


def find_calls(matrix: FactTable) -> set[Call]:
    """Return the components that the rows add, and the condition of each."""
    if matrix.caches.calls is None:
        matrix.caches.calls = {call for line in matrix.rows if (call := _call(matrix, line))[1]}
    return matrix.caches.calls


def _call(matrix: FactTable, line: CompiledRow) -> Call:
    """Return the components that one row adds; none for most."""
    fact = matrix.facts[line.fact]
    added = {matrix.atoms[at].component for at in line.then} if fact.kind in PRESENT_KINDS else set()
    if not fact.default:
        absent = {atom.component for atom in (matrix.atoms[at] for at in line.when) if atom.sure & ABSENT}
        added |= {at for at in absent if matrix.components[at].cost < HARDWARE}
    if not added:
        return frozenset(), frozenset()
    present = (atom.component for atom in (matrix.atoms[at] for at in line.when) if not atom.sure & ABSENT)
    return frozenset(present), frozenset(added)
