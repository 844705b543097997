"""Pairs of components of a plan that no fact relates. A chain of facts about other components answers nothing: torch
takes this Python and this GPU, and that states nothing about a package beside it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations

from envbuild.matrix.facts.atoms import ABSENT
from envbuild.matrix.facts.fact_table import FactTable

Pair = tuple[int, int]  # numbers of components, the smaller first


def unrelated_pairs(
    matrix: FactTable, assignment: Sequence[int], asked: Iterable[int], evidence: Iterable[Collection[int]]
) -> Iterator[Pair]:
    """Yield the pairs of requested components that no fact relates. `evidence`: of each row that holds, the components
    that it is evidence about."""
    known: set[Pair] = set()
    for components in evidence:
        known.update(combinations(sorted(components), 2))
    present = sorted({number for number in asked if assignment[number] != ABSENT})
    for pair in combinations(present, 2):
        if not is_related(matrix, assignment, known, pair):
            yield pair


def is_related(
    matrix: FactTable,
    assignment: Sequence[int],
    known: Collection[Pair],
    pair: Pair,
    seen: frozenset[int] = frozenset(),
) -> bool:
    """Return whether a fact is about both components, none is needed, or both are related to one through which they
    matter to each other."""
    if pair in known:
        return True
    vias = narrow_vias(matrix, assignment, pair)
    if vias is None:
        if pair in matrix.independent:
            return True
        vias = matrix.through.get(pair, ())
    one, other = pair
    return any(
        assignment[via] != ABSENT
        and is_related(matrix, assignment, known, (min(one, via), max(one, via)), seen | {one, other})
        and is_related(matrix, assignment, known, (min(other, via), max(other, via)), seen | {one, other})
        for via in vias
        if via not in seen and via not in pair
    )


def narrow_vias(matrix: FactTable, assignment: Sequence[int], pair: Pair) -> tuple[int, ...] | None:
    """Return the only components through which a pair can be related beside what a component is; None where the pair
    is as any other."""
    if pair not in matrix.narrowed_pairs:
        return None
    number, mask, vias = matrix.narrowed_pairs[pair]
    return vias if assignment[number] & mask else None
