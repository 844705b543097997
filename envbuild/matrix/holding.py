"""Which rows hold in an assignment, and what they find wrong in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from envbuild.matrix import rivals

if TYPE_CHECKING:
    from envbuild.matrix.masks import Matrix

PLANS = 16  # of which it is remembered which rows hold
ALWAYS = -1  # in the place of a component: of rows without a condition


@dataclass(frozen=True, slots=True)
class Held:
    """A row that holds in an assignment. `fails`: the components of its `then` that are not as it says; `unsure`: those
    of which order says nothing. `yields`: component → the row of a better source that binds it instead (what that
    component fails does not stand under `fails`)."""

    row: int
    fails: tuple[str, ...]
    unsure: tuple[str, ...]
    yields: Mapping[str, int] = field(default_factory=dict)


def holding(matrix: Matrix, assignment: Sequence[int], waived: Collection[str]) -> list[Held]:
    """The rows that hold in an assignment, with what they find wrong; without those of the facts `waived`."""
    key = tuple(assignment), frozenset(waived)
    last: dict[object, list[Held]] = matrix.worked_out("held", dict)  # a plan is looked at from several sides
    if key not in last:
        if len(last) >= PLANS:
            last.clear()
        last[key] = _holding(matrix, assignment, waived)
    return last[key]


def _holding(matrix: Matrix, assignment: Sequence[int], waived: Collection[str]) -> list[Held]:
    atoms = matrix.atoms
    held = [
        number
        for number in _candidates(matrix, assignment)
        if all(not assignment[atoms[at].component] & ~atoms[at].sure for at in matrix.rows[number].when)
        and matrix.fact(number).id not in waived
    ]
    held.sort()
    by_question: dict[str, list[int]] = {}
    for row in held:
        by_question.setdefault(matrix.fact(row).question, []).append(row)
    return [_judged(matrix, row, assignment, by_question[matrix.fact(row).question]) for row in held]


def _candidates(matrix: Matrix, assignment: Sequence[int]) -> list[int]:
    """The rows whose narrowest condition is met, so that most of them need not be looked at."""
    guarded = matrix.worked_out("guarded", lambda: _guarded(matrix))
    met: dict[tuple[int, int], list[int]] = matrix.worked_out("met", dict)
    found = [row for row, _ in guarded.get(ALWAYS, ())]
    for key in enumerate(assignment):
        if key not in met:
            number, mask = key
            met[key] = [row for row, sure in guarded.get(number, ()) if not mask & ~sure]
        found += met[key]
    return found


def _guarded(matrix: Matrix) -> Mapping[int, list[tuple[int, int]]]:
    """Component → (row, values) of the rows whose narrowest condition is that it has these values."""
    guarded: dict[int, list[tuple[int, int]]] = {}
    for row, line in enumerate(matrix.rows):
        atom = min((matrix.atoms[at] for at in line.when), key=lambda atom: atom.sure.bit_count(), default=None)
        component, sure = (atom.component, atom.sure) if atom else (ALWAYS, 0)
        guarded.setdefault(component, []).append((row, sure))
    return guarded


def _judged(matrix: Matrix, row: int, assignment: Sequence[int], rows: Iterable[int]) -> Held:
    """`rows`: those that hold and answer the same question."""
    claim = matrix.claim(row)
    unsure = [
        matrix.components[atom.component].name
        for atom in (matrix.atoms[number] for number in matrix.rows[row].then)
        if assignment[atom.component] & atom.maybe
    ]
    yields = {}
    fails = []
    for number, allowed in claim.allowed.items():
        name = matrix.components[number].name
        better = [
            other
            for other in (rows if claim.fact.question else ())
            if rivals.beats(matrix.fact(other), claim.fact)
            and matrix.claim(other).allowed.get(number, allowed) != allowed
        ]
        if better:
            yields[name] = better[0]
        elif not assignment[number] & allowed:
            fails.append(name)
    return Held(row, tuple(fails), tuple(unsure), yields)
