"""The answer to a request: valid, known, conflict, conditional, disputed or unknown, with the reasons."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from envbuild.core.distributions import DISTRIBUTIONS
from envbuild.matrix.answer.verdict import Answer, judge_plan
from envbuild.matrix.facts.atoms import ABSENT
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.waiver import Waiver
from envbuild.matrix.sat.solver import UndecidedError
from envbuild.matrix.solve.encoding import Core, Request, pick_newest
from envbuild.matrix.solve.known_plan import EFFORT, STEPS, prefer_known_plan, unrequested_components
from envbuild.matrix.solve.lasting_gaps import Consequences, has_fixed_gap, unrelatable_pairs
from envbuild.matrix.solve.query import Query
from envbuild.matrix.solve.request import Ask
from envbuild.matrix.solve.shared_search import effort_of
from envbuild.matrix.solve.unknowns import Unknown, has_unknowns, unheard_ranges

if TYPE_CHECKING:  # the module that describes conflicts and searches fixes is imported where there is one
    from envbuild.matrix.answer.fix_trial import PlanFilter
    from envbuild.matrix.answer.fixes import Fix

NEAR = 100  # plans that are tried to find known ones nearby
FEW = 5  # plans that are tried for each change that is to be proposed
OLDER = 12  # changes of which older choices are tried


def check(
    matrix: FactTable, asks: Sequence[Ask], waivers: Sequence[Waiver] = (), satisfied: Collection[str] = frozenset()
) -> Answer:
    """Answer a request. `satisfied`: facts whose condition is satisfied. Raises SpecError for a waiver of a fact that
    does not exist."""
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

        return Answer("conflict", case.asks, conflicts=find_conflicts(case, plan_filter(case)), waived=tuple(waivers))
    answer = judge_plan(case.matrix, case.plan.assignment, case.asks, case.waived, tuple(waivers), satisfied)
    if not answer.unknown:
        return answer
    from envbuild.matrix.answer.conflict_fixes import fix_text

    nearest = nearest_known_changes(case, answer.unknown, plan_filter(case))
    return replace(answer, nearest=tuple(map(fix_text, nearest)), proposed=tuple(nearest))


def plan_filter(case: Query) -> PlanFilter:
    """Return whether a plan may be proposed, as a function of the plan. It adds no component of its own; facts cover
    all of it, or of an older choice of what the request leaves open; and if its base is another one, images can be
    built on that, as far as facts know."""
    matrix = case.matrix
    asked = {request.component for request in case.wanted}
    whole = {request.component: request.mask for request in case.wanted if request.id}
    hopeless = unrelatable_pairs(matrix, map(matrix.number.__getitem__, asked), case.waived)
    bases = matrix.values_of(matrix.number["base"], whole["base"]) if "base" in whole else []
    repositories = {repository for base in bases if (repository := base.rpartition(":")[0])}
    numbers = {name: matrix.number[name] for name in whole}
    consequences = Consequences(matrix, case.waived)
    left = OLDER

    @cache
    def known(pinned: tuple[tuple[str, int], ...]) -> bool:
        nonlocal left
        left -= 1
        if left < 0 or effort_of(matrix) > EFFORT:
            return False
        wanted = [*(Request("", name, mask) for name, mask in pinned), *(r for r in case.wanted if not r.id)]
        try:
            plan = pick_newest(matrix, wanted, case.waived, STEPS)
            if plan is None:
                return False
            plan = prefer_known_plan(matrix, wanted, case.asks, case.waived, plan, FEW)
        except UndecidedError:
            return False
        return not has_unknowns(matrix, plan.assignment, case.asks, case.waived)

    def good(assignment: list[int]) -> bool:
        pinned = {name: _pinned_mask(mask, assignment[matrix.number[name]]) for name, mask in whole.items()}
        fixed = {number for name, number in numbers.items() if assignment[number] == pinned[name]}
        if has_fixed_gap(matrix, assignment, consequences.close(assignment, fixed), numbers.values(), case.waived):
            return False
        if any(assignment[one] != ABSENT and assignment[other] != ABSENT for one, other in hopeless):
            return False
        if unrequested_components(matrix, assignment, asked, case.waived):
            return False
        another = "base" in whole and not assignment[matrix.number["base"]] & whole["base"]
        if another and not is_possible_base(matrix.named(assignment), repositories):
            return False
        if not has_unknowns(matrix, assignment, case.asks, case.waived):
            return True
        return known(tuple(sorted(pinned.items())))

    return good


def _pinned_mask(wanted: int, value: int) -> int:
    """Return what a plan in which a component has this `value` keeps open of what is `wanted`."""
    return wanted if value & wanted and wanted & (wanted - 1) else value


def is_possible_base(chosen: Mapping[str, str], repositories: Collection[str]) -> bool:
    """Return whether the base of a plan may be proposed: images can be built on it, or it is of one of `repositories`
    and no fact names its distribution."""
    return is_buildable_base(chosen) or ("os" not in chosen and chosen["base"].rpartition(":")[0] in repositories)


def is_buildable_base(chosen: Mapping[str, str]) -> bool:
    """Return whether the base of a plan is a distribution that images are built on, with its own Python, or made of
    one."""
    known = DISTRIBUTIONS.get(chosen["base"])
    if known:
        return chosen.get("python", known.python) == known.python
    return chosen.get("os", "") in {item.name.replace(":", "") for item in DISTRIBUTIONS.values()}


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
