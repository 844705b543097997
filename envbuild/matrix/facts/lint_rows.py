"""Errors of rows that hold together: undecided conflicts, contradictions, rows that never hold."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from envbuild.core.errors import Finding
from envbuild.matrix.facts import precedence
from envbuild.matrix.facts.atoms import ABSENT
from envbuild.matrix.facts.claims import row_claim
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.model import Fact
from envbuild.matrix.facts.precedence import Box, Claim


@dataclass(frozen=True, slots=True)
class Binding:
    """The rows that bind everywhere they hold, by the components of their 'when': (components; the masks of the first →
    those of the second → … → the rows). `places`: component → numbers of its groups; -1: of those without a 'when'."""

    groups: Sequence[tuple[frozenset[int], Mapping[Any, Any]]]
    places: Mapping[int, Collection[int]]


def _claims(matrix: FactTable) -> list[Claim]:
    return [row_claim(matrix, row) for row in range(len(matrix.rows))]


def _binding_rows(matrix: FactTable) -> Binding:
    """Return the rows that bind everywhere they hold. Defaults are set aside by requests, and other rows where a better
    source answers."""
    found: dict[frozenset[int], dict[Any, Any]] = {}
    for claim in _claims(matrix):
        yields = any((claim.row, number) in matrix.narrowed for number in claim.allowed)
        if claim.fact.strength == "hard" and not claim.fact.default and not yields:
            place = found.setdefault(frozenset(claim.when), {})
            for number in sorted(claim.when):
                place = place.setdefault(claim.when[number], {})
            place[claim.row] = claim
    places: dict[int, set[int]] = {}
    for at, names in enumerate(found):
        for number in names or (-1,):
            places.setdefault(number, set()).add(at)
    return Binding([*found.items()], places)


def _rows_that_hold(place: Mapping[int, Any], numbers: Sequence[int], box: Mapping[int, int]) -> Iterator[Claim]:
    """Yield the rows of a group of `Binding` that hold everywhere in a box, which may be narrowed meanwhile. Most rows
    have one of few masks: it is read once for all of them."""
    if not numbers:
        yield from place.values()
        return
    number, *rest = numbers
    for mask, below in place.items():
        if not box[number] & ~mask:
            yield from _rows_that_hold(below, rest, box)


def _excluding_row(matrix: FactTable, binding: Binding, *claims: Claim) -> Claim | None:
    """Return a row that leaves some component no value where all `claims` hold, without counting these claims
    themselves.

    Only what follows from one row after the other is checked, which takes milliseconds. A search through all
    combinations for each row takes minutes."""
    box: dict[int, int] = {}
    for claim in claims:
        _narrow(matrix, box, claim.when)
    own = {claim.row for claim in claims}
    changed: Collection[int] = {-1, *box}
    while changed:
        before = dict(box)
        for at in sorted({at for number in changed for at in binding.places.get(number, ())}):
            names, rows = binding.groups[at]
            for other in _rows_that_hold(rows, sorted(names), box) if names <= box.keys() else ():
                if other.row not in own and _narrow(matrix, box, other.allowed):
                    return other
        changed = [number for number, mask in box.items() if before.get(number) != mask]
    return None


def _narrow(matrix: FactTable, box: dict[int, int], masks: Box) -> bool:
    """Narrow a box of values to `masks`. Return whether that leaves some component of `masks` no value."""
    for number, mask in masks.items():
        box[number] = box.get(number, matrix.full[number]) & mask
    return not all(box[number] for number in masks)


def find_unresolved_conflicts(matrix: FactTable) -> Iterator[Finding]:
    """Report rows of different facts that answer one question differently, when neither takes precedence."""
    by_question: dict[str, list[Claim]] = {}
    for claim in _claims(matrix):
        if claim.fact.question and claim.allowed:
            by_question.setdefault(claim.fact.question, []).append(claim)
    binding, reported = _binding_rows(matrix), set()
    for claims in by_question.values():
        for one, other in combinations(claims, 2):
            pair = (one.fact.id, other.fact.id)
            if (
                pair in reported
                or not _is_undecided(one.fact, other.fact)
                or not precedence.boxes_overlap(one.when, other.when)
            ):
                continue
            for number in one.allowed.keys() & other.allowed.keys():
                if (one.allowed[number] ^ other.allowed[number]) & ~ABSENT and not _excluding_row(
                    matrix, binding, one, other
                ):
                    reported.add(pair)
                    yield Finding(
                        f"{one.fact.id} and {other.fact.id} answer '{one.fact.question}' differently for"
                        f" {matrix.components[number].name} ({_texts(matrix, one)}; {_texts(matrix, other)}),"
                        f" both {one.fact.source.type}",
                        matrix.rows[one.row].where,
                        "narrow one, ask two questions, or call both disputed; the other is at "
                        + matrix.rows[other.row].where,
                    )


def _is_undecided(one: Fact, other: Fact) -> bool:
    """Return whether both would bind and neither takes precedence over the other."""
    if (
        one.id == other.id
        or one.default
        or other.default
        or precedence.takes_precedence(one, other)
        or precedence.takes_precedence(other, one)
    ):
        return False
    return "hard" in (one.strength, other.strength) and {one.strength, other.strength} <= {"hard", "disputed"}


def find_contradictions(matrix: FactTable) -> Iterator[Finding]:
    """Report two rows of one fact that hold together and leave a component no value."""
    by_fact: dict[str, list[Claim]] = {}
    binding = _binding_rows(matrix)
    for claim in _claims(matrix):
        if claim.fact.strength == "hard":
            by_fact.setdefault(claim.fact.id, []).append(claim)
    for claims in by_fact.values():
        for one, other in combinations(claims, 2):
            both = [
                matrix.components[number].name
                for number in one.allowed.keys() & other.allowed.keys()
                if not one.allowed[number] & other.allowed[number] & ~ABSENT
                and one.allowed[number] & ~ABSENT
                and other.allowed[number] & ~ABSENT
            ]
            if (
                both
                and precedence.boxes_overlap(one.when, other.when)
                and not _excluding_row(matrix, binding, one, other)
            ):
                yield Finding(
                    f"{one.fact.id}: two rows hold together and leave {both[0]} nothing"
                    f" ({_texts(matrix, one)}; {_texts(matrix, other)})",
                    matrix.rows[other.row].where,
                    f"the first is at {matrix.rows[one.row].where}",
                )


def find_disputes(matrix: FactTable) -> Iterator[Finding]:
    """Report disputed facts without another side."""
    sides = {row for rows, _ in matrix.groups for row in rows}
    for claim in _claims(matrix):
        if claim.fact.strength == "disputed" and claim.row not in sides:
            yield Finding(
                f"{claim.fact.id} is disputed, but no other disputed fact has a row with this 'when' and question",
                matrix.rows[claim.row].where,
                "give the other side's fact the same question and the same 'when'",
            )


def _texts(matrix: FactTable, claim: Claim) -> str:
    when = ", ".join(f"{name} {text}" for name, text in matrix.when(claim.row).items()) or "always"
    then = ", ".join(f"{name} {text}" for name, text in matrix.then(claim.row).items())
    return f"{when}: {claim.fact.kind} {then}"


def find_rows_ruled_out(matrix: FactTable) -> Iterator[Finding]:
    """Report rows that hold in no combination, because other rows rule out their 'when'."""
    binding = _binding_rows(matrix)
    for claim in _claims(matrix):
        if all(claim.when.values()) and (against := _excluding_row(matrix, binding, claim)):
            text = ", ".join(f"{name} {text}" for name, text in matrix.when(claim.row).items())
            yield Finding(
                f"{claim.fact.id}: {against.fact.id} rules out {text}",
                matrix.rows[claim.row].where,
                f"remove this row, or correct the one at {matrix.rows[against.row].where}",
            )
