"""The answer to a request: valid, conflict, conditional, disputed or unknown, and because of what."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from envbuild.matrix import version
from envbuild.matrix.case import Case
from envbuild.matrix.conflict import Conflict, conflicts
from envbuild.matrix.masks import ABSENT, Held, Matrix
from envbuild.matrix.request import Ask
from envbuild.matrix.words import Reason, listed, reason, said, spoken
from envbuild.spec import Waiver

VERDICTS = {"valid": 0, "conditional": 0, "disputed": 0, "conflict": 3, "unknown": 9}  # → exit code


@dataclass(frozen=True, slots=True)
class Unknown:
    """What no fact answers: `id` is the question's (or ``unrelated``), `of` the components."""

    id: str
    of: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """`chosen`: component → value of all that are there, asked for, picked, or brought by others. `reasons` are the
    facts that speak of them; `needs` those about what was not asked for (the host's driver); `superseded` those that a
    better source contradicts."""

    verdict: str
    asks: tuple[Ask, ...]
    chosen: Mapping[str, str] = field(default_factory=dict)
    conflicts: tuple[Conflict, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    conditions: tuple[Reason, ...] = ()
    disputes: tuple[Reason, ...] = ()
    warnings: tuple[Reason, ...] = ()
    needs: tuple[Reason, ...] = ()
    reasons: tuple[Reason, ...] = ()
    superseded: tuple[Reason, ...] = ()
    waived: tuple[Waiver, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return VERDICTS[self.verdict]

    @property
    def facts(self) -> tuple[str, ...]:
        """Ids of all facts that the answer rests on."""
        groups = [conflict.reasons for conflict in self.conflicts]
        groups += [self.conditions, self.disputes, self.warnings, self.needs, self.reasons]
        return tuple(sorted({one.fact for group in groups for one in group}))


def check(
    matrix: Matrix, asks: Sequence[Ask], waivers: Sequence[Waiver] = (), met: Collection[str] = frozenset()
) -> Answer:
    """Answer a request. `met`: facts whose condition is seen to. Raises SpecError for a waiver of a fact that does not
    exist."""
    case = Case.of(matrix, asks, waivers)
    if case.plan is None:

        @cache
        def good(assignment: tuple[int, ...]) -> bool:
            return not blanks(case.matrix, assignment, case.asks, case.waived)

        told = conflicts(case, lambda assignment: good(tuple(assignment)))
        return Answer("conflict", case.asks, conflicts=told, waived=tuple(waivers))
    return judged(case.matrix, case.plan.assignment, case.asks, case.waived, tuple(waivers), met)


def judged(
    matrix: Matrix,
    assignment: Sequence[int],
    asks: Sequence[Ask],
    waived: frozenset[str],
    waivers: tuple[Waiver, ...],
    met: Collection[str] = frozenset(),
) -> Answer:
    """What the facts say of an assignment that breaks no hard one."""
    chosen = matrix.named(assignment)
    held = matrix.holding(assignment, waived)
    failing: dict[str, list[Reason]] = {"conditional": [], "disputed": [], "warn": []}
    reasons: list[Reason] = []
    needs: list[Reason] = []
    superseded: list[Reason] = []
    for one in held:
        told = reason(matrix, one.row, chosen)
        missing = [name for name in told.then if name not in chosen]
        if one.yields:
            claim = matrix.claim(one.row).allowed
            if any(not assignment[number] & allowed for number, allowed in claim.items()):
                superseded.append(told)
        elif one.fails and told.fact in met:
            reasons.append(told)
        elif one.fails and told.strength in failing:
            failing[told.strength].append(told)
        elif missing and told.scope == "container-start" and told.strength == "hard":
            needs.append(replace(told, text=listed([said(matrix, name, told.then[name], {}) for name in missing])))
        elif not missing:
            reasons.append(told)
    if failing["disputed"]:  # those who allow it are heard as well
        open_ones = [one for one in held if matrix.fact(one.row).strength == "disputed"]
        questions = {matrix.fact(one.row).question for one in open_ones if one.fails}
        allow = [one for one in open_ones if not one.fails and matrix.fact(one.row).question in questions]
        failing["disputed"] += [reason(matrix, one.row, chosen) for one in allow]
    missing_facts = blanks(matrix, assignment, asks, waived)
    verdict = (
        "unknown"
        if missing_facts
        else "disputed"
        if failing["disputed"]
        else "conditional"
        if failing["conditional"]
        else "valid"
    )
    return Answer(
        verdict,
        tuple(asks),
        chosen,
        unknown=tuple(missing_facts),
        conditions=tuple(failing["conditional"]),
        disputes=tuple(failing["disputed"]),
        warnings=tuple(failing["warn"]),
        needs=tuple(needs),
        reasons=tuple(reasons),
        superseded=tuple(superseded),
        waived=waivers,
        notes=tuple(newer(matrix, chosen)),
    )


def blanks(matrix: Matrix, assignment: Sequence[int], asks: Sequence[Ask], waived: frozenset[str]) -> list[Unknown]:
    """What no fact says of an assignment."""
    held = matrix.holding(assignment, waived)
    return unanswered(matrix, assignment, held, waived) + unrelated(matrix, assignment, held, asks, waived)


def newer(matrix: Matrix, chosen: Mapping[str, str]) -> list[str]:
    """Says which versions are newer than all that the facts know."""
    notes = []
    for name, value in chosen.items():
        component = matrix.component(name)
        assert component is not None
        if component.complete and component.values and value not in component.values:
            newest = max(component.values, key=version.key)
            if version.key(value) > version.key(newest):
                seen = max(matrix.fact(row).source.seen for row in range(len(matrix.rows)) if name in matrix.when(row))
                notes.append(f"{name} {value} is newer than the facts, which end at {newest} and are of {seen}")
    return notes


def unanswered(
    matrix: Matrix, assignment: Sequence[int], held: Iterable[Held], waived: frozenset[str]
) -> list[Unknown]:
    """Questions about components that are all there and that no fact answers."""
    answered: dict[str, list[set[int]]] = {}
    for one in held:
        if not one.unsure:
            answered.setdefault(matrix.fact(one.row).question, []).append(matrix.touches(one.row))
    chosen, found = matrix.named(assignment), []
    for question in matrix.questions.values():
        numbers = {matrix.number[name] for name in question.of}
        if question.id in waived or any(assignment[number] == ABSENT for number in numbers):
            continue
        if not any(numbers <= touched for touched in answered.get(question.id, ())):
            texts = listed([spoken(matrix, name, chosen) for name in question.of])
            what = f"whether {texts} go together" if len(question.of) > 1 else f"what {texts} asks for"
            found.append(Unknown(question.id, question.of, f"no fact says {what}: {question.about}"))
    return found


def unrelated(
    matrix: Matrix, assignment: Sequence[int], held: Iterable[Held], asks: Sequence[Ask], waived: frozenset[str]
) -> list[Unknown]:
    """Components that were asked for and that no chain of facts relates to the others."""
    parent = list(range(len(assignment)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    for one in held:
        there = [number for number in matrix.touches(one.row) if assignment[number] != ABSENT]
        for number in there[1:]:
            parent[root(number)] = root(there[0])
    pieces: dict[int, list[str]] = {}
    for ask in asks:
        number = matrix.number[ask.component]
        if assignment[number] != ABSENT and ask.component not in pieces.setdefault(root(number), []):
            pieces[root(number)].append(ask.component)
    if len(pieces) < 2 or "unrelated" in waived:
        return []
    chosen = matrix.named(assignment)
    largest, *others = sorted(pieces.values(), key=len, reverse=True)
    rest = listed([spoken(matrix, name, chosen) for name in largest])
    return [
        Unknown(
            "unrelated",
            (*piece, *largest),
            f"no fact relates {listed([spoken(matrix, name, chosen) for name in piece])} to {rest}",
        )
        for piece in others
    ]
