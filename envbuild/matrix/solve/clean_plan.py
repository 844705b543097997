"""A plan without conditions and disputes, in place of one that is newer by less than a minor release."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from envbuild.matrix.facts import version
from envbuild.matrix.facts.atoms import ABSENT, pick_penalty
from envbuild.matrix.facts.claims import row_claim
from envbuild.matrix.facts.evaluate import evaluate_rows
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.value_order import interchangeable_values
from envbuild.matrix.sat.solver import UndecidedError
from envbuild.matrix.solve.encoding import Picks, Request, pick_newest
from envbuild.matrix.solve.known_plan import EFFORT, STEPS, unrequested_components
from envbuild.matrix.solve.request import Ask
from envbuild.matrix.solve.shared_search import effort_of
from envbuild.matrix.solve.unknowns import find_unknowns

TRIES = 6  # plans that are tried
MINOR = 2  # numbers of a version that remain
REMAINING = {"python": 1}  # where it is another: an image has one of the Pythons 3.N, and none follows from another


def prefer_clean_plan(
    matrix: FactTable,
    asks: Sequence[Ask],
    waived: frozenset[str],
    plan: Picks,
    satisfied: Collection[str],
    given: Sequence[Request],
) -> Picks:
    """Return a plan that needs no condition and is not disputed, of the same minor releases as `plan`; else one with
    fewer of the same conditions; `plan` itself if there is none. What the condition is about is made older, the last
    component in the order of picking first. `satisfied`: facts whose condition is satisfied; `given`: all requests."""
    asked = {ask.component for ask in asks}
    end = effort_of(matrix) + EFFORT
    tries = TRIES
    failing = _failing_rows(matrix, plan.assignment, waived, satisfied)
    fewest, best = {matrix.fact(row).id for row in failing}, plan
    for number in _components_of(matrix, plan.assignment, failing):
        current, others = plan, _same_minor(matrix, number, plan.assignment[number])
        while others and tries and effort_of(matrix) < end:
            tries -= 1
            alike = interchangeable_values(matrix, number)[current.assignment[number]]
            others &= ~alike
            wanted = [Request("", matrix.components[number].name, others)] if others else []
            try:
                following = pick_newest(matrix, wanted, waived, STEPS, given) if wanted else None
            except UndecidedError:
                break
            if following is None or not _is_near(matrix, plan, following):
                break
            current = following
            remaining = {matrix.fact(row).id for row in _failing_rows(matrix, current.assignment, waived, satisfied)}
            if remaining < fewest:
                if find_unknowns(matrix, current.assignment, asks, waived):
                    break
                if unrequested_components(matrix, current.assignment, asked, waived):
                    break
                if not remaining:
                    return current
                fewest, best = remaining, current
    return best


def _failing_rows(
    matrix: FactTable, assignment: Sequence[int], waived: frozenset[str], satisfied: Collection[str]
) -> list[int]:
    """Return the rows whose condition a plan has to meet, or that dispute it."""
    rows = (one.row for one in evaluate_rows(matrix, assignment, waived) if one.fails)
    return [
        row
        for row in rows
        if matrix.fact(row).strength in ("conditional", "disputed") and matrix.fact(row).id not in satisfied
    ]


def _components_of(matrix: FactTable, assignment: Sequence[int], rows: Sequence[int]) -> list[int]:
    """Return the components of rows, the last in the order of picking first."""
    found: set[int] = set()
    for row in rows:
        claim = row_claim(matrix, row)
        found |= {number for number in (*claim.when, *claim.allowed) if assignment[number] != ABSENT}
    return sorted(found, reverse=True)


def _same_minor(matrix: FactTable, number: int, value: int) -> int:
    """Return the plain releases of the same minor release as a version; 0 for a value that is not a plain release."""
    text = matrix.value(number, value)
    if text is None or matrix.components[number].kind != "version" or pick_penalty(text):
        return 0
    numbers = REMAINING.get(matrix.components[number].name, MINOR)
    release = version.truncate(text, numbers)
    same = (other for other in matrix.values[number] if not pick_penalty(other))
    return sum(matrix.bits[number][other] for other in same if version.truncate(other, numbers) == release)


def _is_near(matrix: FactTable, plan: Picks, other: Picks) -> bool:
    """Return whether what two plans have in common is of the same minor releases."""
    both = enumerate(zip(plan.assignment, other.assignment, strict=True))
    changed = [(at, before, after) for at, (before, after) in both if ABSENT not in (before, after) and before != after]
    return all(_same_minor(matrix, at, before) & after for at, before, after in changed)
