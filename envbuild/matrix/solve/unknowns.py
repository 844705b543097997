"""The rule of "valid": what the facts must know about a plan before it can be called valid. What they do not know:
versions outside of their domain, questions without an answer, components that no fact relates to the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from envbuild.matrix.facts.atoms import ABSENT, PRESENT_KINDS
from envbuild.matrix.facts.claims import row_claim, row_components
from envbuild.matrix.facts.constraint_masks import constraint_mask, unknown_versions
from envbuild.matrix.facts.domain import NEWEST, OLDEST, listed_versions, outside_reason
from envbuild.matrix.facts.evaluate import evaluate_rows
from envbuild.matrix.facts.fact_table import EvaluatedRow, FactTable
from envbuild.matrix.facts.model import Question
from envbuild.matrix.facts.value_match import matches
from envbuild.matrix.solve.phrasing import component_text, join_and, value_phrase
from envbuild.matrix.solve.request import Ask


@dataclass(frozen=True, slots=True)
class Unknown:
    """A question that no fact answers: `id` is the question's (or ``unrelated``, ``unheard``), `of` the components."""

    id: str
    of: tuple[str, ...]
    text: str


def find_unknowns(
    matrix: FactTable, assignment: Sequence[int], asks: Sequence[Ask], waived: frozenset[str]
) -> list[Unknown]:
    """Return what no fact covers in an assignment."""
    rows = evaluate_rows(matrix, assignment, waived)
    return [
        *(unheard_versions(matrix, assignment, rows) if "unheard" not in waived else ()),
        *unanswered_questions(matrix, assignment, rows, waived),
        *unrelated_components(matrix, assignment, rows, asks, waived),
    ]


def unheard_versions(matrix: FactTable, assignment: Sequence[int], rows: Iterable[EvaluatedRow]) -> Iterator[Unknown]:
    """Yield the versions that are outside of the domain of the facts, and those that a fact needs and no fact lists."""
    for number, added in matrix.added.items():
        value = matrix.value(number, assignment[number] & added)
        if value is not None and (reason := outside_reason(matrix, number, value)):
            yield Unknown("unheard", (matrix.components[number].name,), reason)
    for row in (one.row for one in rows if matrix.fact(one.row).strength == "hard"):
        fact = matrix.fact(row)
        for number, allowed in row_claim(matrix, row).allowed.items() if fact.kind in PRESENT_KINDS else ():
            if allowed == ABSENT:  # no known value is as the fact requires
                name = matrix.components[number].name
                wanted = value_phrase(matrix, name, matrix.then(row)[name], {})
                yield Unknown("unheard", (name,), f"no fact knows a version of {wanted}, which {fact.id} requires")


def unheard_ranges(matrix: FactTable, asks: Iterable[Ask]) -> tuple[Unknown, ...]:
    """Return the requests for versions of which none is known, and that may exist: older or newer than all that are."""
    found = []
    for ask in asks:
        number = matrix.number[ask.component]
        component = matrix.components[number]
        if component.kind != "version" or constraint_mask(matrix, ask.component, ask.constraint):
            continue
        if unknown_versions(matrix, ask.component, ask.constraint) or not (known := listed_versions(matrix, number)):
            continue
        for beyond, end in ((NEWEST, f"newest known is {known[-1]}"), (OLDEST, f"oldest known is {known[0]}")):
            if matches(component, ask.constraint, beyond):
                found.append(Unknown("unheard", (ask.component,), f"no fact knows {ask.text}: {end}"))
                break
    return tuple(found)


def unanswered_questions(
    matrix: FactTable, assignment: Sequence[int], rows: Iterable[EvaluatedRow], waived: frozenset[str]
) -> list[Unknown]:
    """Return questions about components that are all present and that no fact answers."""
    answered: dict[str, list[set[int]]] = {}
    for one in rows:
        if not one.unsure:
            answered.setdefault(matrix.fact(one.row).question, []).append(row_components(matrix, one.row))
    chosen, found = matrix.named(assignment), []
    for question in matrix.questions.values():
        if question.id in waived or not question_arises(matrix, question, assignment):
            continue
        numbers = {matrix.number[name] for name in question.of}
        if not any(numbers <= touched for touched in answered.get(question.id, ())):
            texts = join_and([component_text(matrix, name, chosen) for name in question.of])
            what = f"the combination of {texts}" if len(question.of) > 1 else f"the requirements of {texts}"
            found.append(Unknown(question.id, question.of, f"no fact covers {what}: {question.about}"))
    return found


def question_arises(matrix: FactTable, question: Question, assignment: Sequence[int]) -> bool:
    """Return whether an assignment has all that a question is about, and is as the question requires it."""
    if any(assignment[matrix.number[name]] == ABSENT for name in question.of):
        return False
    atoms = [matrix.atoms[at] for at in matrix.arising.get(question.id, ())]
    return all(not assignment[atom.component] & ~atom.sure for atom in atoms)


def unrelated_components(
    matrix: FactTable,
    assignment: Sequence[int],
    rows: Iterable[EvaluatedRow],
    asks: Sequence[Ask],
    waived: frozenset[str],
) -> list[Unknown]:
    """Return requested components that no chain of facts relates to the others."""
    parent = list(range(len(assignment)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    for one in rows:
        there = [number for number in row_components(matrix, one.row) if assignment[number] != ABSENT]
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
    rest = join_and([component_text(matrix, name, chosen) for name in largest])
    return [
        Unknown(
            "unrelated",
            (*piece, *largest),
            f"no fact relates {join_and([component_text(matrix, name, chosen) for name in piece])} to {rest}",
        )
        for piece in others
    ]
