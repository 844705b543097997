"""The newest plan of which nothing is unknown, and which adds nothing of its own to the request."""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.matrix.facts.atoms import ABSENT, PRESENT_KINDS
from envbuild.matrix.facts.claims import row_claim
from envbuild.matrix.facts.evaluate import evaluate_rows
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.value_order import interchangeable_values
from envbuild.matrix.sat.solver import UndecidedError
from envbuild.matrix.solve.encoding import Picks, Request, pick_newest
from envbuild.matrix.solve.request import Ask
from envbuild.matrix.solve.shared_search import effort_of
from envbuild.matrix.solve.unknowns import Unknown, find_unknowns

TRIES = 24  # plans that are tried for one of which nothing is unknown
STEPS = 100_000  # for one of them
EFFORT = 1_000_000  # steps of all searches after which nothing better is tried: about half a second


def prefer_known_plan(
    matrix: FactTable,
    wanted: Sequence[Request],
    asks: Sequence[Ask],
    waived: frozenset[str],
    plan: Picks,
    tries: int = TRIES,
    given: Sequence[Request] = (),
) -> Picks:
    """Return the newest plan of which nothing is unknown, as far as what the request leaves open allows one: an
    unavoidable gap about one component does not justify another one of which nothing is known. What is open is made
    older, the last component in the order of picking first. `given`: further requests."""
    asked = {ask.component for ask in asks}
    best, missing = plan, find_unknowns(matrix, plan.assignment, asks, waived)
    kept: list[Request] = []  # what was found to be better avoided
    hopeless: set[tuple[str, tuple[str, ...]]] = set()
    end = effort_of(matrix) + EFFORT
    while tries > 0 and (unknown := next((one for one in missing if (one.id, one.of) not in hopeless), None)):
        others = {(one.id, one.of) for one in missing if one is not unknown}
        avoided, current, left = list(kept), best, [unknown]
        while left and tries > 0 and effort_of(matrix) < end:
            tries -= 1
            step = avoid_unknown(matrix, [*wanted, *avoided], current, left, waived, given)
            if step is None or unrequested_components(matrix, step[1].assignment, asked, waived):
                break
            avoided, current = [*avoided, step[0]], step[1]
            found = find_unknowns(matrix, current.assignment, asks, waived)
            left = [one for one in found if (one.id, one.of) not in others]
        if left:
            hopeless.add((unknown.id, unknown.of))
        else:
            best, missing, kept = current, found, avoided
    return best


def avoid_unknown(
    matrix: FactTable,
    wanted: Sequence[Request],
    plan: Picks,
    missing: Sequence[Unknown],
    waived: frozenset[str],
    given: Sequence[Request] = (),
) -> tuple[Request, Picks] | None:
    """Return (what to avoid, the newest plan then) to get away from what is unknown: the value, and those that the
    facts do not distinguish from it, of the last component in the order of picking that can be another one."""
    for number in sorted({matrix.number[name] for unknown in missing for name in unknown.of}, reverse=True):
        value = plan.assignment[number]
        alike = interchangeable_values(matrix, number).get(value, value) if value != ABSENT else value
        other = Request("", matrix.components[number].name, matrix.full[number] & ~alike)
        try:
            following = pick_newest(matrix, [*wanted, other], waived, STEPS, given)
        except UndecidedError:
            continue
        if following is not None:
            return other, following
    return None


def unrequested_components(
    matrix: FactTable, assignment: Sequence[int], asked: set[str], waived: frozenset[str]
) -> set[str]:
    """Return components that are present although nothing requests or requires them: the search may add one to get
    around a fact (a cuda-compat package under an old driver), which is the user's decision."""
    called = {matrix.number[name] for name in asked}
    there = {number for number, mask in enumerate(assignment) if mask != ABSENT}
    calls = [
        (row_claim(matrix, row.row).when.keys() & there, row_claim(matrix, row.row).allowed.keys())
        for row in evaluate_rows(matrix, assignment, waived)
        if matrix.fact(row.row).kind in PRESENT_KINDS
    ]
    grown = True
    while grown:
        before = len(called)
        for needs, claimed in calls:
            if needs <= called:
                called |= claimed
        grown = len(called) > before
    return {matrix.components[number].name for number in there - called}
