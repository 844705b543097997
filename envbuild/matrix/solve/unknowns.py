"""The rule of "valid": what the facts must know about a plan before it can be called valid. What they do not know:
versions outside of their domain, questions without an answer, components that no fact relates to the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from envbuild.matrix.facts.atoms import ABSENT, PRESENT_KINDS
from envbuild.matrix.facts.claims import row_claim
from envbuild.matrix.facts.constraint_masks import constraint_mask, unknown_versions
from envbuild.matrix.facts.domain import NEWEST, OLDEST, listed_versions, other_cuda_reason, outside_reason
from envbuild.matrix.facts.evaluate import evaluate_rows
from envbuild.matrix.facts.evidence import evidence_components
from envbuild.matrix.facts.fact_table import EvaluatedRow, FactTable
from envbuild.matrix.facts.model import Question
from envbuild.matrix.facts.value_match import matches
from envbuild.matrix.solve.pairs import unrelated_pairs
from envbuild.matrix.solve.phrasing import component_text, join_and, value_phrase
from envbuild.matrix.solve.request import Ask

Evidence = Sequence[tuple[int, set[int]]]  # (row, the components that it is evidence about)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A question that no fact answers: `id` is the question's (or ``unrelated``, ``unheard``), `of` the components."""

    id: str
    of: tuple[str, ...]
    text: str


def find_unknowns(
    matrix: FactTable, assignment: Sequence[int], asks: Sequence[Ask], waived: frozenset[str]
) -> list[Unknown]:
    """Return what no fact covers in an assignment. It can be called valid only if that is nothing."""
    return list(_each_unknown(matrix, assignment, asks, waived))


def has_unknowns(matrix: FactTable, assignment: Sequence[int], asks: Sequence[Ask], waived: frozenset[str]) -> bool:
    """Return whether there is something that no fact covers in an assignment."""
    return next(_each_unknown(matrix, assignment, asks, waived), None) is not None


def _each_unknown(
    matrix: FactTable, assignment: Sequence[int], asks: Sequence[Ask], waived: frozenset[str]
) -> Iterator[Unknown]:
    rows = evaluate_rows(matrix, assignment, waived)
    if "unheard" not in waived:
        yield from unheard_versions(matrix, assignment, rows)
    evidence = [(one.row, evidence_components(matrix, one.row, assignment)) for one in rows if not one.unsure]
    yield from unanswered_questions(matrix, assignment, evidence, waived)
    if "unrelated" not in waived:
        yield from unrelated_components(matrix, assignment, evidence, asks, waived)


def unheard_versions(matrix: FactTable, assignment: Sequence[int], rows: Iterable[EvaluatedRow]) -> Iterator[Unknown]:
    """Yield the versions that are outside of the domain of the facts, and those that a fact needs and no fact lists."""
    for number, added in matrix.added.items():
        value = matrix.value(number, assignment[number] & added)
        if value is None:
            continue
        if reason := outside_reason(matrix, number, value) or other_cuda_reason(matrix, assignment, number):
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
    matrix: FactTable, assignment: Sequence[int], evidence: Evidence, waived: frozenset[str]
) -> Iterator[Unknown]:
    """Yield questions about components that are all present and that no fact answers."""
    answered: dict[str, list[set[int]]] = {}
    for row, components in evidence:
        if question_id := matrix.row_questions[row]:
            answered.setdefault(question_id, []).append(components)
    for question, numbers, conditions in arising_questions(matrix):
        if question.id in waived or any(assignment[number] == ABSENT for number in numbers):
            continue
        if any(assignment[number] & unmet for number, unmet in conditions):
            continue
        if not any(touched.issuperset(numbers) for touched in answered.get(question.id, ())):
            chosen = matrix.named(assignment)
            texts = join_and([component_text(matrix, name, chosen) for name in question.of])
            what = f"the combination of {texts}" if len(question.of) > 1 else f"the requirements of {texts}"
            yield Unknown(question.id, question.of, f"no fact covers {what}: {question.about}")


def arising_questions(matrix: FactTable) -> Sequence[tuple[Question, tuple[int, ...], Sequence[tuple[int, int]]]]:
    """Return (question, the components that it is about, (component, values) for which it does not arise)."""
    if matrix.caches.arising is None:
        found = []
        for question in matrix.questions.values():
            atoms = [matrix.atoms[at] for at in matrix.arising.get(question.id, ())]
            numbers = tuple(matrix.number[name] for name in question.of)
            found.append((question, numbers, [(atom.component, ~atom.sure) for atom in atoms]))
        matrix.caches.arising = found
    return matrix.caches.arising


def unrelated_components(
    matrix: FactTable, assignment: Sequence[int], evidence: Evidence, asks: Sequence[Ask], waived: frozenset[str]
) -> Iterator[Unknown]:
    """Yield requested components with those to which no fact relates them."""
    chosen = matrix.named(assignment)
    asked = {matrix.number[ask.component] for ask in asks}
    related: list[Collection[int]] = [components for _, components in evidence]
    related += [{matrix.number[name] for name in matrix.questions[one].of} for one in waived & matrix.questions.keys()]
    aside = (one.row for one in evaluate_rows(matrix, assignment) if one.fails and matrix.fact(one.row).id in waived)
    related += [evidence_components(matrix, row, assignment) for row in aside]  # overridden, with a reason
    strangers: dict[int, list[int]] = {}
    for one, other in unrelated_pairs(matrix, assignment, asked, related):
        strangers.setdefault(other, []).append(one)
    for number, others in strangers.items():
        name, names = matrix.components[number].name, [matrix.components[other].name for other in others]
        rest = join_and([component_text(matrix, other, chosen) for other in names])
        text = f"no fact relates {component_text(matrix, name, chosen)} to {rest}"
        yield Unknown("unrelated", (name, *names), text)
