"""What rows ask for, as clauses for the solver."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from envbuild.matrix import rivals
from envbuild.matrix.atoms import ABSENT
from envbuild.matrix.rivals import Box, Claim
from envbuild.matrix.solver import NOTHING, Clause, Index

if TYPE_CHECKING:
    from envbuild.matrix.masks import Matrix

Narrowed = Mapping[tuple[int, int], Sequence[Box]]
Groups = tuple[tuple[tuple[int, ...], Sequence[Box]], ...]


@dataclass(frozen=True, slots=True)
class Program:
    """Clauses and their index; `owners` names the rows that each comes from: one, or all that dispute one thing."""

    clauses: list[Clause]
    owners: list[tuple[int, ...]]
    index: Index = NOTHING


def program(matrix: Matrix, waived: frozenset[str], strengths: Collection[str]) -> Program:
    """The clauses of all rows of these strengths, without those of the facts `waived`: the masks of what its conditions
    exclude, and of what it says. See `Matrix.program`."""
    atoms, facts, full = matrix.atoms, matrix.facts, matrix.full
    narrowed = _narrowed_without(matrix, waived)
    excluded = [(atom.component, full[atom.component] & ~atom.sure) for atom in atoms]
    said: dict[tuple[str, int], tuple[int, int]] = {}
    binding = [fact.strength in strengths and fact.id not in waived for fact in facts]
    hard = [fact.strength == "hard" for fact in facts]
    found = Program([], [])
    for number, line in enumerate(matrix.rows):
        if not binding[line.fact]:
            continue
        kind = facts[line.fact].kind
        for at in line.then:
            then = said.get((kind, at))
            if then is None:
                then = said[kind, at] = atoms[at].component, matrix.allowed(kind, atoms[at])
            if not hard[line.fact]:  # what is merely advised is not brought in
                then = then[0], then[1] | ABSENT
            if (number, then[0]) not in narrowed:
                found.clauses.append((*[excluded[at] for at in line.when], then))
                found.owners.append((number,))
            else:
                for box in narrowed[number, then[0]]:
                    _append(found, (number,), full, box, dict([then]))
    for rows, boxes in matrix.groups if "hard" in strengths else ():
        left = tuple(row for row in rows if matrix.fact(row).id not in waived)
        for literals in rivals.any_of([matrix.claim(row) for row in rows]) if left else ():
            for box in boxes:
                _append(found, left, full, box, literals)
    return replace(found, index=Index.of(found.clauses))


def without(whole: Program, rows: Collection[int]) -> Program:
    """A program without what comes from these rows, each of which stands alone: clauses that hold whatever is chosen
    stand in the place of theirs, so that the index stays."""
    holds: Clause = ((0, -1),)
    kept = [holds if owners[0] in rows else clause for clause, owners in zip(whole.clauses, whole.owners, strict=True)]
    return Program(kept, whole.owners, whole.index)


def rivalry(
    matrix: Matrix, waived: Collection[str] = (), questions: Collection[str] | None = None
) -> tuple[Narrowed, Groups]:
    """(where rows bind that yield to a better source, which rows dispute one thing) among the facts that answer
    `questions` (None: all facts), as if the facts `waived` said nothing."""
    by_question: dict[str, list[Claim]] = {}
    narrowed: dict[tuple[int, int], Sequence[Box]] = {}
    for row, line in enumerate(matrix.rows):
        fact = matrix.facts[line.fact]
        if questions is not None and fact.question not in questions:
            continue
        claim = matrix.claim(row)
        if fact.question and fact.id not in waived:
            by_question.setdefault(fact.question, []).append(claim)
        for component in claim.when.keys() & claim.allowed.keys():  # one clause must not name it twice
            narrowed[row, component] = [claim.when]
    groups: list[tuple[tuple[int, ...], Sequence[Box]]] = []
    for claims in by_question.values():
        narrowed.update(rivals.narrowed(claims, matrix.full))
        for group in rivals.disputes(claims):
            where = rivals.disputed_in(group, claims, matrix.full)
            groups.append((tuple(claim.row for claim in group), where))
    return narrowed, tuple(groups)


def _narrowed_without(matrix: Matrix, waived: frozenset[str]) -> Narrowed:
    """`Matrix.narrowed` as it is when the facts `waived` say nothing."""
    questions = {fact.question for fact in matrix.facts if fact.id in waived and fact.question}
    if not questions:
        return matrix.narrowed
    others = {key: boxes for key, boxes in matrix.narrowed.items() if matrix.fact(key[0]).question not in questions}
    return {**others, **rivalry(matrix, waived, questions)[0]}


def _append(
    found: Program, owners: tuple[int, ...], full: Sequence[int], box: Box, literals: Mapping[int, int]
) -> None:
    """One clause; a component may stand both in the box and among the literals."""
    merged = {component: full[component] & ~mask for component, mask in box.items()}
    for component, mask in literals.items():
        merged[component] = merged.get(component, 0) | mask
    found.clauses.append(tuple(merged.items()))
    found.owners.append(owners)
