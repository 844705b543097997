"""Facts that answer the same question and disagree: the better source binds where its row holds, the other elsewhere.

Everything here is bit masks over the values of components, as in envbuild.matrix.facts.compile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from envbuild.matrix.facts.model import SOURCES, Fact

Box = Mapping[int, int]  # component → values: where a row holds, as far as each component has one of these values


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of one row: where it holds (`when`) and what each component of its `then` may be there."""

    row: int
    fact: Fact
    when: Box
    allowed: Mapping[int, int]


def takes_precedence(winner: Fact, loser: Fact) -> bool:
    """Return whether rows of `winner` replace rows of `loser` where both hold and differ.

    Only facts of one strength conflict, for a warning and a bound are different kinds of statement; but a bound
    resolves a dispute."""
    if not winner.question or winner.question != loser.question or winner.id == loser.id:
        return False
    strong = winner.strength == loser.strength != "disputed" or (winner.strength, loser.strength) == (
        "hard",
        "disputed",
    )
    return strong and SOURCES.index(winner.source.type) < SOURCES.index(loser.source.type)


def narrow_claims(claims: Iterable[Claim], full: Sequence[int]) -> dict[tuple[int, int], list[Box]]:
    """Return (row, component) → where that row still binds that component, for each that has to yield somewhere.
    `claims` are all rows of one question, `full` the masks of all values."""
    by_fact: dict[str, list[Claim]] = {}
    for claim in claims:
        by_fact.setdefault(claim.fact.id, []).append(claim)
    found: dict[tuple[int, int], list[Box]] = {}
    for losers in by_fact.values():
        winners = [
            claim for rows in by_fact.values() if takes_precedence(rows[0].fact, losers[0].fact) for claim in rows
        ]
        for loser in losers if winners else ():
            for component, allowed in loser.allowed.items():
                boxes = [
                    winner.when
                    for winner in winners
                    if winner.allowed.get(component, allowed) != allowed and boxes_overlap(winner.when, loser.when)
                ]
                if boxes:
                    found[loser.row, component] = subtract_boxes(loser.when, boxes, full)
    return found


def boxes_overlap(one: Box, other: Box) -> bool:
    """Return whether two rows can hold at once."""
    return all(mask & other.get(component, mask) for component, mask in one.items())


def subtract_boxes(box: Box, others: Iterable[Box], full: Sequence[int]) -> list[Box]:
    """Return `box` without the `others`: boxes that do not overlap."""
    left = [box]
    for other in others:
        left = [part for whole in left for part in _subtract_box(whole, other, full)]
    return _merge_boxes(left, full)


def _subtract_box(box: Box, other: Box, full: Sequence[int]) -> list[Box]:
    if not boxes_overlap(other, {component: box.get(component, full[component]) for component in other}):
        return [box]
    parts: list[Box] = []
    inside = dict(box)
    for component, mask in other.items():
        whole = inside.get(component, full[component])
        if whole & ~mask:
            parts.append({**inside, component: whole & ~mask})
            inside[component] = whole & mask
    return parts


def _merge_boxes(boxes: list[Box], full: Sequence[int]) -> list[Box]:
    """Merge boxes that differ in one component only."""
    for component in {component for box in boxes for component in box}:
        groups: dict[tuple[tuple[int, int], ...], int] = {}
        for box in boxes:
            rest = tuple(sorted(item for item in box.items() if item[0] != component))
            groups[rest] = groups.get(rest, 0) | box.get(component, full[component])
        boxes = [dict(rest) | ({component: mask} if mask != full[component] else {}) for rest, mask in groups.items()]
    return boxes


def group_disputes(claims: Iterable[Claim]) -> list[tuple[Claim, ...]]:
    """Return the groups of disputed rows that answer one question for the same case, from two facts or more."""
    groups: dict[tuple[str, frozenset[tuple[int, int]]], list[Claim]] = {}
    for claim in claims:
        if claim.fact.strength == "disputed" and claim.fact.question and claim.allowed:
            groups.setdefault((claim.fact.question, frozenset(claim.when.items())), []).append(claim)
    return [tuple(group) for group in groups.values() if len({claim.fact.id for claim in group}) > 1]


def dispute_clauses(group: Sequence[Claim]) -> list[dict[int, int]]:
    """Return clauses that hold when at least one row of a dispute is met: one of the components of each dict is within
    its mask."""
    clauses: list[dict[int, int]] = [{}]
    for claim in group:
        clauses = [
            {**clause, component: clause.get(component, 0) | mask}
            for clause in clauses
            for component, mask in claim.allowed.items()
        ]
    return clauses


def dispute_boxes(group: Sequence[Claim], claims: Iterable[Claim], full: Sequence[int]) -> list[Box]:
    """Return where a dispute is open: where its rows hold, without the part where a better source than all of them
    answers otherwise."""
    boxes = [
        winner.when
        for winner in claims
        if all(takes_precedence(winner.fact, claim.fact) for claim in group)
        and boxes_overlap(winner.when, group[0].when)
        and any(winner.allowed.get(c, mask) != mask for claim in group for c, mask in claim.allowed.items())
    ]
    return subtract_boxes(group[0].when, boxes, full)
