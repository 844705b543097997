"""Gaps of the facts that no choice of versions fills: the search for a known combination leaves them out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations

from envbuild.matrix.facts.atoms import ABSENT
from envbuild.matrix.facts.claims import row_claim
from envbuild.matrix.facts.domain import outside_reason
from envbuild.matrix.facts.evaluate import guarded_rows
from envbuild.matrix.facts.evidence import evident_pairs, evident_values
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.solve.encoding import Request
from envbuild.matrix.solve.pairs import Pair, narrow_vias
from envbuild.matrix.solve.unknowns import arising_questions

UNRELATED = "unrelated"  # what a waiver of this finding is about
UNHEARD = "unheard"
MOST_KNOWN = 50_000  # judged pairs that are cached


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


def has_fixed_gap(
    matrix: FactTable,
    assignment: Sequence[int],
    fixed: Collection[int],
    asked: Collection[int],
    waived: frozenset[str],
) -> bool:
    """Return whether something is unknown about each assignment in which the components `fixed` have these values.
    `asked`: those between which a fact is needed. False means that one
    may be known."""
    fixed = {number for number in fixed if assignment[number] != ABSENT}
    for question, numbers, conditions in arising_questions(matrix):
        if question.id in waived or not fixed.issuperset(numbers):
            continue
        if all(number in fixed and not assignment[number] & unmet for number, unmet in conditions) and not any(
            _may_answer(matrix, row, assignment, fixed, numbers) for row in matrix.question_rows.get(question.id, ())
        ):
            return True
    if UNRELATED in waived or not waived.isdisjoint(matrix.questions):
        return False
    related = partial(_may_be_related, matrix, assignment, fixed)
    return not all(related(pair, frozenset()) for pair in combinations(sorted(fixed.intersection(asked)), 2))


class Consequences:
    """The components whose values follow from given ones, in every assignment."""

    def __init__(self, matrix: FactTable, waived: Collection[str]) -> None:
        """Prepare for the facts of `matrix`, less those that are `waived`."""
        self._matrix, self._waived = matrix, waived
        self._disputed = {row for rows, _ in matrix.groups for row in rows}

    def close(self, assignment: list[int], fixed: Collection[int]) -> set[int]:
        """Give the components whose values follow from those of `fixed` ones these values; return all of them."""
        found, left = set(fixed), list(fixed)
        while left:
            for fact, number, value in self._decided_by(one := left.pop(), assignment[one]):
                if number not in found and fact not in self._waived:
                    assignment[number] = value
                    found.add(number)
                    left.append(number)
        return found

    def _decided_by(self, number: int, value: int) -> Sequence[tuple[str, int, int]]:
        known = self._matrix.caches.decided
        if (number, value) not in known:
            known[number, value] = tuple(self._find_decided(number, value))
        return known[number, value]

    def _find_decided(self, number: int, value: int) -> Iterator[tuple[str, int, int]]:
        """Yield (fact, component, value) that follow from one value."""
        matrix = self._matrix
        for (row, others), sure in guarded_rows(matrix).get(number, ()):
            fact = matrix.fact(row)
            if others or value & ~sure or row in self._disputed or fact.strength != "hard":
                continue
            for other, allowed in row_claim(matrix, row).allowed.items():
                if allowed.bit_count() == 1 and (row, other) not in matrix.narrowed:
                    yield fact.id, other, allowed


def _may_answer(
    matrix: FactTable, row: int, assignment: Sequence[int], fixed: Collection[int], numbers: Iterable[int]
) -> bool:
    """Return whether a row holds in some assignment with these `fixed` values, and is evidence about `numbers`."""
    atoms, line = matrix.atoms, matrix.rows[row]
    for number, unmet in ((atoms[at].component, ~atoms[at].sure) for at in line.when):
        if (number in fixed or number in matrix.closed) and assignment[number] & unmet:
            return False
    if any(atoms[at].component in fixed and assignment[atoms[at].component] & atoms[at].maybe for at in line.then):
        return False
    evident = evident_values(matrix, row)
    return all(
        assignment[number] & evident.get(number, 0) if number in fixed else number in evident for number in numbers
    )


def _may_be_related(
    matrix: FactTable, assignment: Sequence[int], fixed: Collection[int], pair: Pair, seen: frozenset[int]
) -> bool:
    """Return whether `is_related` could hold of a pair beside these `fixed` values."""
    narrowed = matrix.narrowed_pairs.get(pair)
    vias = narrow_vias(matrix, assignment, pair) if narrowed and narrowed[0] in fixed else None
    if (vias is None and pair in matrix.independent) or _may_have_fact(matrix, assignment, fixed, pair):
        return True
    related = partial(_may_be_related, matrix, assignment, fixed)
    return any(
        all(related((min(one, via), max(one, via)), seen.union(pair)) for one in pair)
        for via in (matrix.through.get(pair, ()) if vias is None else vias)
        if via not in seen and via not in pair
    )


def _may_have_fact(matrix: FactTable, assignment: Sequence[int], fixed: Collection[int], pair: Pair) -> bool:
    """Return whether a row may be evidence about both components. The same values are judged for many plans."""
    rows = evident_pairs(matrix).get(pair, ())
    if not rows:
        return False
    if pair not in matrix.caches.concerned:
        atoms = {at for row in rows for at in (*matrix.rows[row].when, *matrix.rows[row].then)}
        matrix.caches.concerned[pair] = tuple(sorted({*pair, *(matrix.atoms[at].component for at in atoms)}))
    known, closed = matrix.caches.relatable, matrix.closed
    numbers = (number for number in matrix.caches.concerned[pair] if number in fixed or number in closed)
    key = pair, tuple((number, assignment[number], number in fixed) for number in numbers)
    if key not in known:
        if len(known) >= MOST_KNOWN:
            known.clear()
        known[key] = any(_may_answer(matrix, row, assignment, fixed, pair) for row in rows)
    return known[key]


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
