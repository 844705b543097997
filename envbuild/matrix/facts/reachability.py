"""Which components facts may bring along, so that all others can be left out of a search."""

from __future__ import annotations

from collections.abc import Iterable

from envbuild.matrix.facts.atoms import ABSENT, PRESENT_KINDS
from envbuild.matrix.facts.fact_table import HARDWARE, CompiledRow, FactTable

Call = tuple[frozenset[int], frozenset[int]]  # (components that must be there, components that may then be)


def reachable_components(matrix: FactTable, names: Iterable[str]) -> set[int]:
    """Return the numbers of `names` and of all that facts may bring when these are there, whatever their values: rows
    that call for a component, or that hold only while a package is absent."""
    found = {matrix.number[name] for name in names}
    calls = find_calls(matrix)
    size = -1
    while size != len(found):
        size = len(found)
        for needs, brings in calls:
            if needs <= found:
                found |= brings
    return found


def find_calls(matrix: FactTable) -> set[Call]:
    """Return what the rows bring, and when."""
    if matrix.caches.calls is None:
        matrix.caches.calls = {call for line in matrix.rows if (call := _call(matrix, line))[1]}
    return matrix.caches.calls


def _call(matrix: FactTable, line: CompiledRow) -> Call:
    """Return what one row brings; nothing for most."""
    fact = matrix.facts[line.fact]
    brings = {matrix.atoms[at].component for at in line.then} if fact.kind in PRESENT_KINDS else set()
    if not fact.default:
        absent = {atom.component for atom in (matrix.atoms[at] for at in line.when) if atom.sure & ABSENT}
        brings |= {at for at in absent if matrix.components[at].cost < HARDWARE}
    if not brings:
        return frozenset(), frozenset()
    present = (atom.component for atom in (matrix.atoms[at] for at in line.when) if not atom.sure & ABSENT)
    return frozenset(present), frozenset(brings)
