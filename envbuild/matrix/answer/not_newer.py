"""The reasons why a version is not newer in the answer to a request."""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.core.errors import SpecError
from envbuild.core.yaml_reader import did_you_mean
from envbuild.matrix.answer import conflict_core
from envbuild.matrix.answer.clauses import because_clauses
from envbuild.matrix.answer.conflict_reasons import core_reasons
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.waiver import Waiver
from envbuild.matrix.solve.phrasing import component_text, join_and
from envbuild.matrix.solve.query import Query, undecided_as_unknown
from envbuild.matrix.solve.request import Ask


def explain_not_newer(
    matrix: FactTable, asks: Sequence[Ask], component: str, waivers: Sequence[Waiver] = ()
) -> list[str]:
    """Return sentences on why `component` is not newer in the answer to `asks`. Raises SpecError for a component that
    does not exist."""
    case = Query.of(matrix, asks, waivers)
    if case.plan is None:
        return []
    matrix = case.matrix
    chosen = matrix.named(case.plan.assignment)
    if component not in chosen:
        raise SpecError(f"'{component}' is not part of the request", did_you_mean(component, chosen, "there are"))
    lines = []
    with undecided_as_unknown():
        newer = conflict_core.newer_value_conflicts(matrix, case.wanted, case.plan, component, case.waived)
    for value, core in newer:
        name = component_text(matrix, component, {component: value})
        given = case.involved(core)
        known = {ask.component: ask.constraint.text for ask in given}
        silent = [request.component for request in core.requests if not request.id]
        known |= {name: chosen[name] for name in silent if name in chosen}
        known |= {component: value}
        reasons = because_clauses(matrix, core, core_reasons(case, core, known), known)
        if not reasons:
            texts = join_and([f"{ask.text}{f' ({ask.by})' if ask.by else ''}" for ask in given])
            lines.append(f"{name} is not taken, because of the request for {texts}.")
        else:
            lines.append(f"{name} is not taken, because {' and '.join(reasons)}.")
    if lines:
        return lines
    taken = component_text(matrix, component, chosen)
    if chosen[component] == matrix.values[matrix.number[component]][0]:
        return [f"{taken} is the newest that the facts know."]
    return [f"{taken} is taken, because of newer ones something is unknown, or they need a condition."]
