"""A request as the solver sees it, and the newest plan that satisfies it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from envbuild.core.errors import Finding, SpecError, UnknownError
from envbuild.core.yaml_reader import closest
from envbuild.matrix.facts.atoms import ABSENT, PRESENT_KINDS
from envbuild.matrix.facts.claims import row_claim
from envbuild.matrix.facts.constraint_masks import requested_mask, unknown_versions
from envbuild.matrix.facts.evaluate import evaluate_rows
from envbuild.matrix.facts.extension import extend_table
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.reachability import backing_clauses, bound_values, reachable_components
from envbuild.matrix.facts.value_order import interchangeable_values
from envbuild.matrix.facts.waiver import Waiver
from envbuild.matrix.sat.solver import UndecidedError
from envbuild.matrix.solve.encoding import Core, Picks, Request, pick_newest
from envbuild.matrix.solve.lasting_gaps import unrelatable_pairs
from envbuild.matrix.solve.request import Ask
from envbuild.matrix.solve.shared_search import effort_of
from envbuild.matrix.solve.unknowns import Unknown, find_unknowns

TRIES = 24  # plans that are tried for one of which nothing is unknown
STEPS = 100_000  # for one of them
EFFORT = 1_000_000  # steps of all searches after which nothing better is tried: about half a second


@contextmanager
def undecided_as_unknown() -> Iterator[None]:
    """Raise UnknownError for a search that ran out of steps inside: a question without an answer is not a valid
    combination."""
    try:
        yield
    except UndecidedError as error:
        hint = "name more of the versions: each that is given leaves less to search"
        raise UnknownError(f"the facts leave this undecided: {error}", hint) from None


@dataclass(frozen=True, slots=True)
class Query:
    """A request as the solver sees it. `wanted` begins with the `asks`; what follows are components that must be
    absent, because nothing requires them. `waived`: ids of facts set aside, by waivers or because they only state a
    default that the request overrides."""

    matrix: FactTable
    asks: tuple[Ask, ...]
    wanted: list[Request]
    waived: frozenset[str]
    plan: Picks | None

    @classmethod
    def of(cls, matrix: FactTable, asks: Sequence[Ask], waivers: Iterable[Waiver]) -> Query:
        """Return the newest plan for `asks`, or none. Raises SpecError for a waiver of a fact that does not exist."""
        waived = waived_ids(matrix, waivers) | overridden_defaults(matrix, asks)
        matrix = extend_table(matrix, unlisted_versions(matrix, asks))
        wanted = ask_requests(matrix, asks, waived)
        there = reachable_components(matrix, (ask.component for ask in asks))
        asked = {matrix.number[ask.component] for ask in asks}
        backing = {at: clause for at, clause in backing_clauses(matrix).items() if at in there - asked}
        matrix = matrix.closing(set(range(len(matrix.components))) - there, backing, values_kept_out(matrix, wanted))
        with undecided_as_unknown():
            while (plan := pick_newest(matrix, (), waived, given=wanted)) is not None:
                extra = unrequested_components(matrix, plan.assignment, {ask.component for ask in asks}, waived)
                if not extra:
                    break
                wanted = [*wanted, *(Request("", name, ABSENT) for name in sorted(extra))]
            if plan is not None:
                plan = prefer_known_plan(matrix, (), asks, waived, plan, given=wanted)
        return cls(matrix, tuple(asks), wanted, waived, plan)

    @property
    def image(self) -> bool:
        """Return whether the request is that of an image: then its target states its hardware."""
        return any(ask.by.startswith("target ") for ask in self.asks)

    def unrelatable(self) -> list[frozenset[str]]:
        """Return the pairs of requested components that no row relates, in any of their versions."""
        asked = (self.matrix.number[ask.component] for ask in self.asks)
        names = self.matrix.components
        return [frozenset(names[at].name for at in pair) for pair in unrelatable_pairs(self.matrix, asked, self.waived)]

    def involved(self, core: Core) -> tuple[Ask, ...]:
        """Return the requirements that a conflict names."""
        return tuple(self.asks[int(request.id)] for request in core.requests if request.id)


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


def ask_requests(matrix: FactTable, asks: Sequence[Ask], waived: Collection[str] = ()) -> list[Request]:
    """Return `asks` as masks; each request's id is the number of its ask. A default that is set aside no longer means
    that a version without a label is one without: ``torch=2.8 channel=pytorch`` is 2.8.0+cu128."""
    labelled = {name for row in matrix.defaults if matrix.fact(row).id in waived for name in matrix.when(row)}
    masks = [requested_mask(matrix, ask.component, ask.constraint, labels=ask.component in labelled) for ask in asks]
    return [Request(str(at), ask.component, mask) for at, (ask, mask) in enumerate(zip(asks, masks, strict=True))]


def values_kept_out(matrix: FactTable, wanted: Sequence[Request]) -> dict[int, int]:
    """Return component → the values that are not picked, because they come with something that the user did not
    request: the torch of NGC's images, unless the request names that torch, an image, or the channel."""
    asked = {matrix.number[request.component]: request.mask for request in wanted}
    return {
        number: mask
        for number, (mask, places) in bound_values(matrix).items()
        if not places & asked.keys() and asked.get(number, ABSENT) & ~mask
    }


def overridden_defaults(matrix: FactTable, asks: Iterable[Ask]) -> frozenset[str]:
    """Return the ids of defaults about what a request names itself."""
    named = {ask.component for ask in asks}
    return frozenset(matrix.fact(row).id for row in matrix.defaults if named & matrix.then(row).keys())


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


def unlisted_versions(matrix: FactTable, asks: Iterable[Ask]) -> dict[str, list[str]]:
    """Return requested versions that no fact names."""
    found: dict[str, list[str]] = {}
    for ask in asks:
        for value in unknown_versions(matrix, ask.component, ask.constraint):
            found.setdefault(ask.component, []).append(value)
    return found


def waived_ids(matrix: FactTable, waivers: Iterable[Waiver]) -> frozenset[str]:
    """Return the ids of the facts and questions waived. Raises SpecError for those that do not exist."""
    ids = {fact.id for fact in matrix.facts} | set(matrix.questions) | {"unrelated", "unheard"}
    findings = [
        Finding(
            f"no fact is called '{waiver.fact}', so it cannot be waived", waiver.where, waiver_hint(waiver.fact, ids)
        )
        for waiver in waivers
        if waiver.fact not in ids
    ]
    if findings:
        raise SpecError.of(findings)
    return frozenset(waiver.fact for waiver in waivers)


def waiver_hint(name: str, ids: Collection[str]) -> str:
    return closest(name, ids) or "the ids are those that `envbuild check` shows in brackets"
