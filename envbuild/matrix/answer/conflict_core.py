"""The smallest set of requests and rows that contradict each other: why a request is impossible.

Facts are left out first, as wholes, then the rows of those that are needed."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace

from envbuild.matrix.facts.claims import condition_components, row_components
from envbuild.matrix.facts.fact_table import HARD, HARD_AND_WARN, FactTable
from envbuild.matrix.facts.value_order import ascending_bits
from envbuild.matrix.sat.minimal_core import Deadline, find_minimal_core
from envbuild.matrix.solve.encoding import ALWAYS, SECONDS, Core, Owner, Picks, Problem, Request

ORDERS = 8  # enough to find the smallest set in every instance that was measured
ROW_ORDERS = 2
GROUPED = 6  # rows of one fact that are named one by one
CONFLICTS = 20


def find_core(whole: Problem, clock: Deadline) -> Core | None:
    """Return the smallest conflict that is found before the deadline; None when there is a plan. Raises UndecidedError
    when not even that can be decided."""
    matrix, whole = whole.matrix, whole.relevant()

    def fact(owner: Owner) -> Hashable | None:
        """Return the request, the fact, or the facts that dispute one thing; None for a clause that always holds."""
        return owner if isinstance(owner, int) else tuple(sorted({matrix.fact(row).id for row in owner})) or None

    members, ask = whole.contradict(fact)
    found = find_minimal_core(ask, members, clock, ORDERS)
    if found is None:
        return None
    chosen = [number for number, owner in enumerate(whole.owners) if owner == ALWAYS or fact(owner) in found[0]]
    inner = whole.part(chosen)
    members, ask = inner.contradict(lambda owner: None if owner == ALWAYS else owner)
    least = find_minimal_core(ask, members, clock, ROW_ORDERS)
    assert least is not None
    return _build_core(whole, least[0], found[1] and least[1])


def _build_core(whole: Problem, members: Collection[Hashable], minimal: bool) -> Core:
    matrix = whole.matrix
    requests = tuple(request for at, request in enumerate(whole.requests) if at in members)
    rows = {row for member in members if isinstance(member, tuple) for row in member}
    ordered = _order_rows(matrix, rows, {matrix.number[request.component] for request in requests})
    by_fact: dict[str, list[int]] = {}
    for row in ordered:
        by_fact.setdefault(matrix.fact(row).id, []).append(row)
    groups: list[tuple[int, ...]] = []
    for row in ordered:
        same = by_fact[matrix.fact(row).id]
        if len(same) <= GROUPED:
            groups.append((row,))
        elif row == same[0]:
            groups.append(tuple(same))
    narrow = frozenset(row for row in rows if matrix.fact(row).kind != "provides")
    last = frozenset(by_fact[matrix.fact(ordered[-1]).id]) if ordered else frozenset()
    return Core(requests, tuple(ordered), tuple(groups), narrow or last, minimal)


def _order_rows(matrix: FactTable, rows: Collection[int], known: set[int]) -> list[int]:
    """Return the rows in the order in which one can be followed after another: first those about what is `known`. If
    there is a choice, definitions come first."""
    left = sorted(rows, key=lambda row: (matrix.fact(row).kind != "provides", matrix.fact(row).id, row))
    ordered: list[int] = []
    known = set(known)
    while left:
        row = next((row for row in left if condition_components(matrix, row) <= known), left[0])
        left.remove(row)
        ordered.append(row)
        known |= row_components(matrix, row)
    return ordered


def find_cores(
    matrix: FactTable, requests: Sequence[Request], waived: Collection[str] = (), seconds: float = SECONDS
) -> list[Core]:
    """Return independent conflicts; none when there is a plan. After one is found, the search continues without its
    rows (but with definitions, such as what a GPU's compute capability is, unless it consists of nothing else), or, if
    requests contradict each other, without the last of them. Raises UndecidedError when nothing can be decided."""
    found: list[Core] = []
    ignored: set[int] = set()
    clock = Deadline(seconds)
    left = list(requests)
    while len(found) < CONFLICTS and not (found and clock.has_passed()):
        conflict = find_core(Problem.of(matrix, left, waived, HARD, ignored), clock)
        if conflict is None:
            break
        found.append(conflict)
        ignored |= conflict.aside
        if not conflict.rows:
            left.remove(conflict.requests[-1])
    return found


def newer_value_conflicts(
    matrix: FactTable,
    requests: Sequence[Request],
    plan: Picks,
    component: str,
    waived: Collection[str] = (),
    count: int = 3,
) -> list[tuple[str, Core]]:
    """Return why `component` is not newer in `plan`: for each of the next `count` values that would be preferred,
    nearest first, the conflict with the requests and with what is picked before it. Picked values are among the
    requests of a conflict with an empty id; the value itself is not. A conflict of only one request means that this
    request rules the value out."""
    at = matrix.number[component]
    whole = Problem.of(matrix, requests, waived, HARD_AND_WARN, plan.unheeded)
    search = whole.search()
    order = whole.order(search)
    search.first()
    chosen = {*search.decision_variables(), *(matrix.number[request.component] for request in requests)}
    pins = [  # also what a request leaves one value of: else each value that it does not have would be explained
        Request("", matrix.components[number].name, plan.assignment[number])
        for number in order[: order.index(at)]
        if number in chosen
    ]
    releases = ascending_bits(matrix, at, plan.assignment[at])
    found: list[tuple[str, Core]] = []
    for bit in releases[releases.index(plan.assignment[at]) + 1 :] if plan.assignment[at] in releases else ():
        for strengths in (HARD, HARD_AND_WARN):
            whole = Problem.of(matrix, [*requests, *pins], waived, strengths, plan.unheeded)
            domains = tuple(bit if number == at else mask for number, mask in enumerate(whole.domains))
            conflict = find_core(replace(whole, domains=domains), Deadline(SECONDS))
            if conflict is not None:
                found.append((matrix.values_of(at, bit)[0], conflict))
                break
        if len(found) == count:
            break
    return found
