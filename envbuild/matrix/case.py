"""A request as the solver sees it, and the newest plan that meets it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from envbuild.errors import Finding, SpecError, UnknownError
from envbuild.fields import did_you_mean
from envbuild.matrix import explain
from envbuild.matrix.blanks import blanks
from envbuild.matrix.explain import Core, Request
from envbuild.matrix.masks import ABSENT, PRESENT_KINDS, Matrix
from envbuild.matrix.problem import Picks
from envbuild.matrix.request import Ask
from envbuild.matrix.solver import Undecided
from envbuild.spec import Waiver

TRIES = 24  # plans that are looked at for one of which nothing is unknown


@contextmanager
def decided() -> Iterator[None]:
    """A search that was given up inside becomes UnknownError: a question without an answer is no valid one."""
    try:
        yield
    except Undecided as error:
        hint = "name more of the versions: each that is given leaves less to search"
        raise UnknownError(f"the facts leave this undecided: {error}", hint) from None


@dataclass(frozen=True, slots=True)
class Case:
    """A request as the solver sees it. `wanted` begins with the asks; what follows are components that must stay
    absent, because nothing asks for them. `waived`: ids of facts set aside, by waivers or because they only say what is
    meant when nobody says otherwise."""

    matrix: Matrix
    asks: tuple[Ask, ...]
    wanted: list[Request]
    waived: frozenset[str]
    plan: Picks | None

    @classmethod
    def of(cls, matrix: Matrix, asks: Sequence[Ask], waivers: Iterable[Waiver]) -> Case:
        """The newest plan for `asks`, or none. Raises SpecError for a waiver of a fact that does not exist."""
        waived = known_waivers(matrix, waivers) | settled_by(matrix, asks)
        matrix = matrix.extended(unheard(matrix, asks))
        wanted = requests(matrix, asks)
        reachable = matrix.reachable(ask.component for ask in asks)
        matrix = matrix.closing(set(range(len(matrix.components))) - reachable)
        with decided():
            while (plan := explain.picks(matrix, wanted, waived)) is not None:
                extra = uncalled(matrix, plan.assignment, {ask.component for ask in asks}, waived)
                if not extra:
                    break
                wanted += [Request("", name, ABSENT) for name in sorted(extra)]
            if plan is not None:
                plan = spoken_of(matrix, wanted, asks, waived, plan)
        return cls(matrix, tuple(asks), wanted, waived, plan)

    def involved(self, core: Core) -> tuple[Ask, ...]:
        """The asks that a conflict names."""
        return tuple(self.asks[int(request.id)] for request in core.requests if request.id)


def spoken_of(
    matrix: Matrix,
    wanted: Sequence[Request],
    asks: Sequence[Ask],
    waived: frozenset[str],
    plan: Picks,
    tries: int = TRIES,
) -> Picks:
    """The newest plan of which nothing is unknown, where what the request leaves open allows one; else `plan`. What is
    open is made older, the last component in the order of picking first."""
    asked = {ask.component for ask in asks}
    avoided: list[Request] = []
    current: Picks | None = plan
    for _ in range(tries):
        if current is None or uncalled(matrix, current.assignment, asked, waived):
            return plan
        missing = blanks(matrix, current.assignment, asks, waived)
        if not missing:
            return current
        names = {matrix.number[name] for unknown in missing for name in unknown.of}
        for number in sorted(names, reverse=True):
            other = Request("", matrix.components[number].name, matrix.full[number] & ~current.assignment[number])
            following = explain.picks(matrix, [*wanted, *avoided, other], waived)
            if following is not None:
                avoided.append(other)
                break
        current = following
    return plan


def requests(matrix: Matrix, asks: Sequence[Ask]) -> list[Request]:
    """The asks as masks; each request's id is the number of its ask."""
    return [Request(str(at), ask.component, matrix.asked(ask.component, ask.constraint)) for at, ask in enumerate(asks)]


def settled_by(matrix: Matrix, asks: Iterable[Ask]) -> frozenset[str]:
    """The ids of defaults about what a request names itself."""
    named = {ask.component for ask in asks}
    return frozenset(
        matrix.facts[line.fact].id
        for row, line in enumerate(matrix.rows)
        if matrix.facts[line.fact].default and named & matrix.then(row).keys()
    )


def uncalled(matrix: Matrix, assignment: Sequence[int], asked: set[str], waived: frozenset[str]) -> set[str]:
    """Components that are there although nobody asks for them and no fact brings them: the search may add one to get
    around a fact (a cuda-compat package under an old driver), which is for a person to decide."""
    called = {matrix.number[name] for name in asked}
    there = {number for number, mask in enumerate(assignment) if mask != ABSENT}
    calls = [
        (matrix.needs(held.row) & there, {matrix.number[name] for name in matrix.then(held.row)})
        for held in matrix.holding(assignment, waived)
        if matrix.fact(held.row).kind in PRESENT_KINDS
    ]
    grown = True
    while grown:
        before = len(called)
        for needs, says in calls:
            if needs <= called:
                called |= says
        grown = len(called) > before
    return {matrix.components[number].name for number in there - called}


def unheard(matrix: Matrix, asks: Iterable[Ask]) -> dict[str, list[str]]:
    """Versions that are asked for and that no fact names."""
    found: dict[str, list[str]] = {}
    for ask in asks:
        for value in matrix.unheard(ask.component, ask.constraint):
            found.setdefault(ask.component, []).append(value)
    return found


def known_waivers(matrix: Matrix, waivers: Iterable[Waiver]) -> frozenset[str]:
    """The ids of the facts and questions waived. Raises SpecError for those that do not exist."""
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
    hint = did_you_mean(name, ids, "")
    return hint if hint.startswith("did you") else "the ids are those that `envbuild check` shows in brackets"
