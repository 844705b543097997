"""The answer to a request, and the verdict of the facts on a plan: valid, known, conditional, disputed or unknown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from envbuild.matrix.answer.host_needs import host_needs
from envbuild.matrix.facts.atoms import ABSENT
from envbuild.matrix.facts.claims import row_claim
from envbuild.matrix.facts.domain import newer_note
from envbuild.matrix.facts.evaluate import evaluate_rows
from envbuild.matrix.facts.fact_table import EvaluatedRow, FactTable
from envbuild.matrix.facts.waiver import Waiver
from envbuild.matrix.solve.phrasing import Reason, row_reason
from envbuild.matrix.solve.request import Ask
from envbuild.matrix.solve.unknowns import Unknown, find_unknowns

if TYPE_CHECKING:  # the module that describes conflicts and searches fixes is imported where there is one
    from envbuild.matrix.answer.conflict import Conflict
    from envbuild.matrix.answer.fixes import Fix

VERDICTS = {"valid": 0, "known": 0, "conditional": 0, "disputed": 0, "conflict": 3, "unknown": 9}  # → exit code


@dataclass(frozen=True)
class CitedRows:
    """Rows that are about what was chosen, formatted as sentences on demand: what each states, and not why it would
    exclude something, because it excludes nothing of that. `satisfied`: rows that would, but for a condition that is
    satisfied."""

    matrix: FactTable
    chosen: Mapping[str, str]
    rows: tuple[int, ...]
    satisfied: frozenset[int] = frozenset()

    @cached_property
    def reasons(self) -> tuple[Reason, ...]:
        return tuple(map(self.reason, self.rows))

    def reason(self, row: int) -> Reason:
        """Return one row as a sentence."""
        if row in self.satisfied:
            found = row_reason(self.matrix, row, self.chosen)
            return replace(found, text=f"satisfied: {found.condition or found.text}")
        return row_reason(self.matrix, row, self.chosen, plainly=not self.matrix.fact(row).default)


@dataclass(frozen=True, slots=True)
class Answer:
    """`chosen`: component → value of all that are present: requested, picked, or required by others. `reasons` are the
    facts about them; `needs` those about what was not requested (the host's driver); `superseded` those that a better
    source contradicts; `nearest`, if something is unknown, the nearest changes to what is known as texts, `proposed`
    the same as values."""

    verdict: str
    asks: tuple[Ask, ...]
    chosen: Mapping[str, str] = field(default_factory=dict)
    conflicts: tuple[Conflict, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    conditions: tuple[Reason, ...] = ()
    disputes: tuple[Reason, ...] = ()
    warnings: tuple[Reason, ...] = ()
    needs: tuple[Reason, ...] = ()
    waived: tuple[Waiver, ...] = ()
    notes: tuple[str, ...] = ()
    nearest: tuple[str, ...] = ()
    proposed: tuple[Fix, ...] = ()
    cited_rows: CitedRows | None = None
    yielding: CitedRows | None = None

    @property
    def reasons(self) -> tuple[Reason, ...]:
        return self.cited_rows.reasons if self.cited_rows else ()

    @property
    def superseded(self) -> tuple[Reason, ...]:
        return self.yielding.reasons if self.yielding else ()

    @property
    def exit_code(self) -> int:
        return VERDICTS[self.verdict]

    @property
    def used(self) -> list[Reason]:
        """Return all reasons that the answer rests on."""
        groups = [conflict.reasons for conflict in self.conflicts]
        groups += [self.conditions, self.disputes, self.warnings, self.needs, self.reasons]
        return [one for group in groups for one in group]

    @property
    def facts(self) -> tuple[str, ...]:
        """Return the ids of all facts that the answer rests on."""
        return tuple(sorted({one.fact for one in self.used}))


@dataclass(slots=True)
class SortedRows:
    """The rows that apply to an assignment. `failing`: strength → those that it does not meet; `superseded`: those
    that it breaks and that a better source contradicts; `reasons`: the others, `satisfied` those of them whose
    condition is satisfied."""

    failing: dict[str, list[Reason]] = field(default_factory=lambda: {"conditional": [], "disputed": [], "warn": []})
    reasons: list[int] = field(default_factory=list)
    satisfied: list[int] = field(default_factory=list)
    superseded: list[int] = field(default_factory=list)


def judge_plan(
    matrix: FactTable,
    assignment: Sequence[int],
    asks: Sequence[Ask],
    waived: frozenset[str],
    waivers: tuple[Waiver, ...],
    satisfied: Collection[str] = frozenset(),
) -> Answer:
    """Return the verdict of the facts on an assignment that breaks no hard one."""
    chosen = matrix.named(assignment)
    applicable = evaluate_rows(matrix, assignment, waived)
    cited = sort_rows(matrix, assignment, applicable, chosen, satisfied)
    disputes = cited.failing["disputed"]
    if disputes:  # also report the facts that allow it
        disputes = [*disputes, *allowing_reasons(matrix, applicable, chosen)]
    missing_facts = find_unknowns(matrix, assignment, asks, waived)
    grounds = {
        "unknown": missing_facts,
        "disputed": disputes,
        "conditional": cited.failing["conditional"],
        "known": len({ask.component for ask in asks}) == 1,  # one component alone: nothing to compare it with
    }
    return Answer(
        next((verdict for verdict, ground in grounds.items() if ground), "valid"),
        tuple(asks),
        chosen,
        unknown=tuple(missing_facts),
        conditions=tuple(cited.failing["conditional"]),
        disputes=tuple(disputes),
        warnings=tuple(cited.failing["warn"]),
        needs=tuple(host_needs(matrix, assignment, applicable, chosen, waived)),
        cited_rows=CitedRows(matrix, chosen, tuple(cited.reasons), frozenset(cited.satisfied)),
        yielding=CitedRows(matrix, chosen, tuple(cited.superseded)),
        waived=waivers,
        notes=tuple(newer_version_notes(matrix, chosen)),
    )


def sort_rows(
    matrix: FactTable,
    assignment: Sequence[int],
    applicable: Iterable[EvaluatedRow],
    chosen: Mapping[str, str],
    satisfied: Collection[str],
) -> SortedRows:
    """Return the rows that apply to an assignment, by what they state about it."""
    found = SortedRows()
    for one in applicable:
        fact, then = matrix.fact(one.row), row_claim(matrix, one.row).allowed
        if one.yields:
            if any(not assignment[number] & allowed for number, allowed in then.items()):
                found.superseded.append(one.row)
        elif one.fails and fact.id in satisfied:
            found.reasons.append(one.row)
            found.satisfied.append(one.row)
        elif one.fails and fact.strength in found.failing:
            found.failing[fact.strength].append(row_reason(matrix, one.row, chosen))
        elif all(assignment[number] != ABSENT for number in then):
            found.reasons.append(one.row)
    return found


def allowing_reasons(matrix: FactTable, applicable: Iterable[EvaluatedRow], chosen: Mapping[str, str]) -> list[Reason]:
    """Return the disputed facts that allow what others of their question exclude."""
    disputed = [one for one in applicable if matrix.fact(one.row).strength == "disputed"]
    questions = {matrix.fact(one.row).question for one in disputed if one.fails}
    allow = [one for one in disputed if not one.fails and matrix.fact(one.row).question in questions]
    return [row_reason(matrix, one.row, chosen, plainly=True) for one in allow]


def newer_version_notes(matrix: FactTable, chosen: Mapping[str, str]) -> list[str]:
    """Return a note for each version that is newer than all that the facts list."""
    added = {number: value for number in matrix.added if (value := chosen.get(matrix.components[number].name))}
    notes = (newer_note(matrix, number, value) for number, value in added.items())
    return list(filter(None, notes))
