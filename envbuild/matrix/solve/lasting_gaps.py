"""Gaps of the facts that no choice of versions fills: the search for a known combination leaves them out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import combinations

from envbuild.matrix.facts.domain import outside_reason
from envbuild.matrix.facts.evidence import evident_pairs
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.solve.encoding import Request
from envbuild.matrix.solve.pairs import Pair

UNRELATED = "unrelated"  # what a waiver of this finding is about
UNHEARD = "unheard"


def unrelatable_pairs(matrix: FactTable, asked: Iterable[int], waived: Collection[str]) -> list[Pair]:
    """Return the pairs of requested components that no row relates, in any of their versions."""
    if UNRELATED in waived:
        return []
    known = set(evident_pairs(matrix))
    for question in waived & matrix.questions.keys():
        known.update(combinations(sorted(matrix.number[name] for name in matrix.questions[question].of), 2))
    return [pair for pair in combinations(sorted(set(asked)), 2) if not _is_relatable(matrix, known, pair, frozenset())]


def can_be_covered(pairs: Collection[frozenset[str]], count: int) -> bool:
    """Return whether some `count` components are part of all pairs."""
    if not pairs:
        return True
    first = next(iter(pairs))
    return count > 0 and any(can_be_covered([pair for pair in pairs if name not in pair], count - 1) for name in first)


def _is_relatable(matrix: FactTable, known: Collection[Pair], pair: Pair, seen: frozenset[int]) -> bool:
    """Return whether `is_related` could hold of a pair in some plan."""
    if pair in known or pair in matrix.independent:
        return True
    return any(
        all(_is_relatable(matrix, known, (min(one, via), max(one, via)), seen | set(pair)) for one in pair)
        for via in matrix.through.get(pair, ())
        if via not in seen and via not in pair
    )


def unheard_requests(matrix: FactTable, requests: Iterable[Request], waived: Collection[str]) -> list[Request]:
    """Return the requests that allow nothing but versions outside of what the facts know."""
    if UNHEARD in waived:
        return []
    return [one for one in requests if one.id and one.mask and _is_unheard(matrix, one)]


def _is_unheard(matrix: FactTable, request: Request) -> bool:
    number = matrix.number[request.component]
    if request.mask & ~matrix.added.get(number, 0):  # the facts list one of them
        return False
    return all(outside_reason(matrix, number, value) for value in matrix.values_of(number, request.mask))
