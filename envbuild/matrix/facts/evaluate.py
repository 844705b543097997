"""The rows that hold in an assignment, and what they find wrong in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from envbuild.matrix.facts import precedence
from envbuild.matrix.facts.claims import row_claim
from envbuild.matrix.facts.fact_table import EvaluatedRow, FactTable, GuardedRow

MAX_ASSIGNMENTS = 16  # of which the rows are cached
ALWAYS = -1  # in the place of a component: of rows without a condition


def evaluate_rows(matrix: FactTable, assignment: Sequence[int], waived: Collection[str] = ()) -> list[EvaluatedRow]:
    """Return the rows that hold in an assignment, with what they find wrong; without those of the facts `waived`."""
    known = matrix.caches.evaluated  # one plan is evaluated for several answers
    key = tuple(assignment), frozenset(waived)
    if key not in known:
        if len(known) >= MAX_ASSIGNMENTS:
            known.clear()
        known[key] = _evaluate_all(matrix, assignment, waived)
    return known[key]


def _evaluate_all(matrix: FactTable, assignment: Sequence[int], waived: Collection[str]) -> list[EvaluatedRow]:
    rows = []
    for row, others in _candidates(matrix, assignment):
        for number, unmet in others:
            if assignment[number] & unmet:
                break
        else:
            rows.append(row)
    if waived:
        rows = [row for row in rows if matrix.fact(row).id not in waived]
    rows.sort()
    questions = matrix.row_questions
    by_question: dict[str, list[int]] = {}
    for row in rows:
        if question := questions[row]:
            by_question.setdefault(question, []).append(row)
    return [_evaluate(matrix, row, assignment, by_question.get(questions[row], ())) for row in rows]


def _candidates(matrix: FactTable, assignment: Sequence[int]) -> list[GuardedRow]:
    """Return the rows whose narrowest condition is met, so that the others need no check."""
    known, guarded = matrix.caches.candidates, guarded_rows(matrix)
    found = [one for one, _ in guarded.get(ALWAYS, ())]
    for key in enumerate(assignment):
        if key not in known:
            number, mask = key
            known[key] = [one for one, sure in guarded.get(number, ()) if not mask & ~sure]
        found += known[key]
    return found


def guarded_rows(matrix: FactTable) -> Mapping[int, Sequence[tuple[GuardedRow, int]]]:
    """Return component → (row, values) of the rows whose narrowest condition is that it has these values."""
    if matrix.caches.guarded is None:
        matrix.caches.guarded = _find_guarded(matrix)
    return matrix.caches.guarded


def _find_guarded(matrix: FactTable) -> dict[int, list[tuple[GuardedRow, int]]]:
    guarded: dict[int, list[tuple[GuardedRow, int]]] = {}
    for row, at in enumerate(find_guards(matrix)):
        component, sure = (matrix.atoms[at].component, matrix.atoms[at].sure) if at != ALWAYS else (ALWAYS, 0)
        others = [matrix.atoms[other] for other in matrix.rows[row].when if other != at]
        unmet = tuple((atom.component, ~atom.sure) for atom in others)
        guarded.setdefault(component, []).append(((row, unmet), sure))
    return guarded


def find_guards(matrix: FactTable) -> Sequence[int]:
    """Return the atom that is the narrowest condition of each row; ALWAYS for those without a condition."""
    if matrix.caches.guards is None:
        sizes = [atom.sure.bit_count() for atom in matrix.atoms]
        matrix.caches.guards = [min(line.when, key=sizes.__getitem__, default=ALWAYS) for line in matrix.rows]
    return matrix.caches.guards


def _evaluate(matrix: FactTable, row: int, assignment: Sequence[int], rows: Collection[int]) -> EvaluatedRow:
    """Return the result of one row. `rows`: those that hold and answer the same question, if it answers one."""
    claim = row_claim(matrix, row)
    uncertain = _uncertain_values(matrix, row)
    others = rows if len(rows) > 1 else ()
    if not others and not uncertain and all(assignment[number] & allowed for number, allowed in claim.allowed.items()):
        known = matrix.caches.satisfied
        if row not in known:
            known[row] = EvaluatedRow(row, (), (), {})
        return known[row]
    unsure = [matrix.components[number].name for number, maybe in uncertain if assignment[number] & maybe]
    yields = {}
    fails = []
    for number, allowed in claim.allowed.items():
        name = matrix.components[number].name
        better = [
            other
            for other in others
            if precedence.takes_precedence(matrix.fact(other), claim.fact)
            and row_claim(matrix, other).allowed.get(number, allowed) != allowed
        ]
        if better:
            yields[name] = better[0]
        elif not assignment[number] & allowed:
            fails.append(name)
    return EvaluatedRow(row, tuple(fails), tuple(unsure), yields)


def _uncertain_values(matrix: FactTable, row: int) -> Sequence[tuple[int, int]]:
    """Return (component, values) of what a row requires of which some values cannot be compared."""
    known = matrix.caches.uncertain
    if row not in known:
        atoms = (matrix.atoms[number] for number in matrix.rows[row].then)
        known[row] = [(atom.component, atom.maybe) for atom in atoms if atom.maybe]
    return known[row]
