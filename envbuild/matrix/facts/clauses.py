"""The clauses of rows, for the solver."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from envbuild.matrix.facts import precedence
from envbuild.matrix.facts.atoms import ABSENT
from envbuild.matrix.facts.claims import allowed_mask, row_claim
from envbuild.matrix.facts.fact_table import HARD, Caches, FactTable
from envbuild.matrix.facts.precedence import Box, Claim
from envbuild.matrix.sat.clause_index import ClauseIndex
from envbuild.matrix.sat.program import Program

Narrowed = Mapping[tuple[int, int], Sequence[Box]]
Groups = tuple[tuple[tuple[int, ...], Sequence[Box]], ...]


def program_of(matrix: FactTable, waived: Collection[str] = (), strengths: tuple[str, ...] = HARD) -> Program:
    """Return the clauses of all rows of these strengths, without those of the facts `waived` (conflicting facts then
    bind in their place). Of a dispute, what all sides have in common binds, unless every side is waived."""
    programs = matrix.caches.programs
    key = frozenset(waived), strengths
    if key not in programs:
        replaced = replaceable_waivers(matrix, waived)
        programs[key] = (
            _compile_rows(matrix, replaced, strengths)
            if key[0] == replaced
            else program_of(matrix, replaced, strengths).without(_rows_of(matrix, key[0] - replaced))
        )
    return programs[key]


def replaceable_waivers(matrix: FactTable, waived: Collection[str]) -> frozenset[str]:
    """Return those of the facts `waived` in whose place others bind; the others only leave gaps in the program of
    all."""
    return frozenset(fact.id for fact in matrix.facts if fact.question and fact.id in waived)


def update_precedence(matrix: FactTable, components: Collection[int] | None = None) -> FactTable:
    """Return the table with the precedence of its facts computed again, as is necessary after a change of its
    values. `components`: those that have other values now; None: all."""
    if components is None:
        narrowed, groups = compute_precedence(matrix)
    else:
        atoms = {at for at, atom in enumerate(matrix.atoms) if atom.component in components}
        rows = [line for line in matrix.rows if not atoms.isdisjoint(line.when) or not atoms.isdisjoint(line.then)]
        questions = {matrix.facts[line.fact].question for line in rows} - {""}
        again, open_groups = compute_precedence(matrix, (), questions)
        others = {key: boxes for key, boxes in matrix.narrowed.items() if matrix.fact(key[0]).question not in questions}
        kept = (group for group in matrix.groups if matrix.fact(group[0][0]).question not in questions)
        narrowed, groups = {**others, **again}, (*kept, *open_groups)
    old = matrix.caches
    caches = Caches(claims=old.claims, calls=old.calls, guards=old.guards)
    return replace(matrix, narrowed=narrowed, groups=groups, caches=caches)


def _rows_of(matrix: FactTable, ids: Collection[str]) -> set[int]:
    numbers = {at for at, fact in enumerate(matrix.facts) if fact.id in ids}
    return {row for row, line in enumerate(matrix.rows) if line.fact in numbers} if numbers else set()


def _compile_rows(matrix: FactTable, waived: frozenset[str], strengths: Collection[str]) -> Program:
    """Return the clauses of all rows of these strengths, without those of the facts `waived`: the masks of what the
    conditions of each row exclude, and of what the row allows."""
    found = Program([], [])
    _add_rows(found, matrix, waived, strengths)
    if "hard" in strengths:
        _add_disputes(found, matrix, waived)
    return replace(found, index=ClauseIndex.of(found.clauses))


def _add_rows(found: Program, matrix: FactTable, waived: frozenset[str], strengths: Collection[str]) -> None:
    atoms, facts, full = matrix.atoms, matrix.facts, matrix.full
    narrowed = _narrowed_without(matrix, waived)
    excluded = [(atom.component, full[atom.component] & ~atom.sure) for atom in atoms]
    allowed: dict[tuple[str, int], tuple[int, int]] = {}
    binding = [fact.strength in strengths and fact.id not in waived for fact in facts]
    hard = [fact.strength == "hard" for fact in facts]
    for number, line in enumerate(matrix.rows):
        if not binding[line.fact]:
            continue
        kind = facts[line.fact].kind
        for at in line.then:
            then = allowed.get((kind, at))
            if then is None:
                then = allowed[kind, at] = atoms[at].component, allowed_mask(matrix, kind, atoms[at])
            if not hard[line.fact]:  # a warning does not require a component
                then = then[0], then[1] | ABSENT
            if (number, then[0]) not in narrowed:
                found.clauses.append((*[excluded[at] for at in line.when], then))
                found.owners.append((number,))
            else:
                for box in narrowed[number, then[0]]:
                    _add_clause(found, (number,), full, box, dict([then]))


def _add_disputes(found: Program, matrix: FactTable, waived: frozenset[str]) -> None:
    """Add the clauses of what all sides of a dispute have in common, unless every side is waived."""
    for rows, boxes in matrix.groups:
        left = tuple(row for row in rows if matrix.fact(row).id not in waived)
        for literals in precedence.dispute_clauses([row_claim(matrix, row) for row in rows]) if left else ():
            for box in boxes:
                _add_clause(found, left, matrix.full, box, literals)


def compute_precedence(
    matrix: FactTable, waived: Collection[str] = (), questions: Collection[str] | None = None
) -> tuple[Narrowed, Groups]:
    """Return (where rows bind that yield to a better source, which rows dispute one thing) among the facts that answer
    `questions` (None: all facts), as if the facts `waived` did not exist."""
    by_question: dict[str, list[Claim]] = {}
    narrowed: dict[tuple[int, int], Sequence[Box]] = {}
    for row, line in enumerate(matrix.rows):
        fact = matrix.facts[line.fact]
        if questions is not None and fact.question not in questions:
            continue
        claim = row_claim(matrix, row)
        if fact.question and fact.id not in waived:
            by_question.setdefault(fact.question, []).append(claim)
        for component in claim.when.keys() & claim.allowed.keys():  # one clause must not name it twice
            narrowed[row, component] = [claim.when]
    groups: list[tuple[tuple[int, ...], Sequence[Box]]] = []
    for claims in by_question.values():
        narrowed.update(precedence.narrow_claims(claims, matrix.full))
        for group in precedence.group_disputes(claims):
            where = precedence.dispute_boxes(group, claims, matrix.full)
            groups.append((tuple(claim.row for claim in group), where))
    return narrowed, tuple(groups)


def _narrowed_without(matrix: FactTable, waived: frozenset[str]) -> Narrowed:
    """Return `FactTable.narrowed` as it is without the facts `waived`."""
    questions = {fact.question for fact in matrix.facts if fact.id in waived and fact.question}
    if not questions:
        return matrix.narrowed
    others = {key: boxes for key, boxes in matrix.narrowed.items() if matrix.fact(key[0]).question not in questions}
    return {**others, **compute_precedence(matrix, waived, questions)[0]}


def _add_clause(
    found: Program, owners: tuple[int, ...], full: Sequence[int], box: Box, literals: Mapping[int, int]
) -> None:
    """Add one clause; a component may be both in the box and among the literals."""
    merged = {component: full[component] & ~mask for component, mask in box.items()}
    for component, mask in literals.items():
        merged[component] = merged.get(component, 0) | mask
    found.clauses.append(tuple(merged.items()))
    found.owners.append(owners)
