"""The answer to a request: valid, known, conflict, conditional, disputed or unknown, with the reasons."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from envbuild.core.gc_pause import gc_paused
from envbuild.matrix.answer.verdict import Answer, judge_plan
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.waiver import Waiver
from envbuild.matrix.solve.encoding import Core
from envbuild.matrix.solve.query import Query
from envbuild.matrix.solve.request import Ask
from envbuild.matrix.solve.unknowns import Unknown, unheard_ranges

if TYPE_CHECKING:  # the module that describes conflicts and searches fixes is imported where there is one
    from envbuild.matrix.answer.fixes import Fix
    from envbuild.matrix.answer.plan_filter import PlanFilter

NEAR = 100  # plans that are tried to find known ones nearby


def check(
    matrix: FactTable, asks: Sequence[Ask], waivers: Sequence[Waiver] = (), satisfied: Collection[str] = frozenset()
) -> Answer:
    """Answer a request. `satisfied`: facts whose condition is satisfied. Raises SpecError for a waiver of a fact that
    does not exist."""
    with gc_paused():  # it would scan the many small objects of a search again and again
        answer = _answer(matrix, asks, waivers, satisfied)
    replaced = {fact.id: fact.where for fact in matrix.facts if fact.replaces}
    notes = [f"{name} is replaced by {replaced[name]}" for name in answer.facts if name in replaced] if replaced else []
    return replace(answer, notes=(*answer.notes, *notes))


def _answer(matrix: FactTable, asks: Sequence[Ask], waivers: Sequence[Waiver], satisfied: Collection[str]) -> Answer:
    if gaps := unheard_ranges(matrix, asks):
        return Answer("unknown", tuple(asks), unknown=gaps, waived=tuple(waivers))
    case = Query.of(matrix, asks, waivers, satisfied)
    if case.plan is None:
        from envbuild.matrix.answer.conflict import find_conflicts
        from envbuild.matrix.answer.plan_filter import ProposablePlans

        return Answer(
            "conflict", case.asks, conflicts=find_conflicts(case, ProposablePlans(case)), waived=tuple(waivers)
        )
    answer = judge_plan(case.matrix, case.plan.assignment, case.asks, case.waived, tuple(waivers), satisfied)
    if not answer.unknown:
        return answer
    from envbuild.matrix.answer.conflict_fixes import fix_text
    from envbuild.matrix.answer.plan_filter import ProposablePlans

    nearest = nearest_known_changes(case, answer.unknown, ProposablePlans(case))
    return replace(answer, nearest=tuple(map(fix_text, nearest)), proposed=tuple(nearest))


def nearest_known_changes(case: Query, unknown: Sequence[Unknown], good: PlanFilter) -> Sequence[Fix]:
    """Return the nearest changes after which nothing is unknown."""
    from envbuild.matrix.answer.change_rules import rule_stages
    from envbuild.matrix.answer.conflict_fixes import lasting_cores, prefer_plain_fixes
    from envbuild.matrix.answer.fixes import find_fixes
    from envbuild.matrix.answer.typed_back import TypedBack

    names = {name for one in unknown for name in one.of}
    involved = tuple(request for request in case.wanted if request.id and request.component in names)
    cores = [Core.of(involved), *lasting_cores(case)]
    for rules in rule_stages(case, known=True):
        found = prefer_plain_fixes(case, find_fixes(case.matrix, case.wanted, cores, case.waived, good, NEAR, rules))
        if not case.image:
            found = TypedBack(case).keep_working(found)
        if found:
            return found
    return ()
