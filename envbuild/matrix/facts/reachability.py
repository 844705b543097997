"""The components that facts may add to a request, and the condition of each: nothing is added that no fact requires."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from envbuild.matrix.facts.atoms import ABSENT, NO_GPU, PRESENT_KINDS, pick_penalty
from envbuild.matrix.facts.fact_table import HARDWARE, CompiledRow, FactTable
from envbuild.matrix.sat.clause_index import Clause

UNCOMPARABLE = 3  # pick_penalty of a version that has no order
Call = tuple[frozenset[int], frozenset[int]]  # (components that must be present, components that must then be)
Bound = tuple[int, int, frozenset[int]]  # (component, values of it, components of which a request allows these)


def reachable_components(matrix: FactTable, names: Iterable[str]) -> set[int]:
    """Return the numbers of `names` and of all that facts may call for when these are present with any values."""
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
    """Return the components that the rows call for, and the condition of each."""
    if matrix.caches.calls is None:
        lines = [line for line in matrix.rows if matrix.facts[line.fact].kind in PRESENT_KINDS]
        matrix.caches.calls = {_call(matrix, line) for line in lines}
    return matrix.caches.calls


def _call(matrix: FactTable, line: CompiledRow) -> Call:
    """Return the components that one row calls for."""
    present = (atom.component for atom in (matrix.atoms[at] for at in line.when) if not atom.sure & ABSENT)
    return frozenset(present), frozenset(matrix.atoms[at].component for at in line.then)


def backing_clauses(matrix: FactTable) -> Mapping[int, Clause]:
    """Return component → a clause that it must meet unless it is requested: it is absent, or one of the rows that call
    for it may hold. Without it a search would add a component to get around a fact (a cuda-compat package under an old
    driver), and a conflict would explain why that does not help.

    Components have one whose absence a row names as its condition."""
    if matrix.caches.backing is None:
        matrix.caches.backing = _find_backing(matrix)
    return matrix.caches.backing


def _find_backing(matrix: FactTable) -> dict[int, Clause]:
    atoms = matrix.atoms
    absent = {atoms[at].component for line in matrix.rows for at in line.when if atoms[at].sure & ABSENT}
    calls: dict[int, list[dict[int, int]]] = {at: [] for at in absent if matrix.components[at].cost < HARDWARE}
    for line in matrix.rows:
        if matrix.facts[line.fact].kind in PRESENT_KINDS:
            conditions = {atoms[at].component: atoms[at].sure for at in line.when if not atoms[at].sure & ABSENT}
            for number in {atoms[at].component for at in line.then} & calls.keys():
                calls[number].append(conditions)
    return {number: _backing(matrix, number, rows) for number, rows in calls.items() if all(rows)}


def _backing(matrix: FactTable, number: int, rows: list[dict[int, int]]) -> Clause:
    """Return the clause that a component is absent, or one condition of one of the `rows` that call for it is met. Of
    each row the condition counts that most of them have; of several, the one that the smallest part of the values
    meets: a GPU of few names excludes more requests than any version of torch."""

    def weight(component: int, mask: int) -> tuple[int, float, int]:
        return often[component], -mask.bit_count() / matrix.full[component].bit_count(), component

    often: dict[int, int] = {}
    for conditions in rows:
        for component in conditions:
            often[component] = often.get(component, 0) + 1
    masks: dict[int, int] = {}
    for conditions in rows:
        component = max(conditions, key=lambda component: weight(component, conditions[component]))
        masks[component] = masks.get(component, 0) | conditions[component]
    return ((number, ABSENT), *masks.items())


def bound_values(matrix: FactTable) -> Sequence[Bound]:
    """Return (component, some of its values, the components of which a request allows these) for the values that are
    not picked unless one of these components is requested, or they are themselves. NGC's builds of torch, which cannot
    be compared, come with its images and exist nowhere else. A build without code for GPUs satisfies every fact about
    one, and a request that does not name it does not mean it."""
    if matrix.caches.bound is None:
        matrix.caches.bound = _find_bound(matrix)
    return matrix.caches.bound


def _find_bound(matrix: FactTable) -> list[Bound]:
    return [
        *_values_without_gpu(matrix),
        *((at, mask, places) for at, (mask, places) in _values_of_one_place(matrix).items()),
    ]


def _values_without_gpu(matrix: FactTable) -> Iterator[Bound]:
    """Yield component → its builds without code for GPUs, and the components that such a build excludes: a request of
    one of these decides about it."""
    for at, known in enumerate(matrix.values):
        mask = sum(2 << place for place, value in enumerate(known) if value.endswith(NO_GPU))
        if mask:
            about = (line for line in matrix.rows if [matrix.atoms[one].component for one in line.when] == [at])
            lines = [line for line in about if not matrix.atoms[line.when[0]].sure & ~mask]
            atoms = (matrix.atoms[one] for line in lines for one in line.then)
            yield at, mask, frozenset(atom.component for atom in atoms if atom.sure == ABSENT)


def _values_of_one_place(matrix: FactTable) -> dict[int, tuple[int, frozenset[int]]]:
    """Return component → (its values that cannot be compared and exist in one place only, the components that name
    this place)."""
    found: dict[int, tuple[int, frozenset[int]]] = {}
    for line in matrix.rows:
        if len(line.when) != 1 or matrix.facts[line.fact].kind != "requires":
            continue
        number, sure = matrix.atoms[line.when[0]].component, matrix.atoms[line.when[0]].sure
        if matrix.components[number].kind != "version":
            continue
        value = matrix.value(number, sure) if sure.bit_count() == 1 else None
        if value is not None and "+" in value and pick_penalty(value) == UNCOMPARABLE:
            mask, places = found.get(number, (0, frozenset()))
            found[number] = mask | sure, places | {matrix.atoms[at].component for at in line.then}
    return found
