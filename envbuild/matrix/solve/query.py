"""A request as the solver sees it, and the newest plan that satisfies it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from envbuild.core.errors import Finding, SpecError, UnknownError
from envbuild.core.yaml_reader import closest
from envbuild.matrix.facts.atoms import ABSENT
from envbuild.matrix.facts.constraint_masks import requested_mask, unknown_versions
from envbuild.matrix.facts.extension import extend_table
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.reachability import backing_clauses, bound_values, reachable_components
from envbuild.matrix.facts.waiver import Waiver
from envbuild.matrix.sat.solver import UndecidedError
from envbuild.matrix.solve.clean_plan import prefer_clean_plan
from envbuild.matrix.solve.encoding import Core, Picks, Request, pick_newest
from envbuild.matrix.solve.known_plan import prefer_known_plan, unrequested_components
from envbuild.matrix.solve.lasting_gaps import unrelatable_pairs
from envbuild.matrix.solve.request import Ask


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
    def of(
        cls, matrix: FactTable, asks: Sequence[Ask], waivers: Iterable[Waiver], satisfied: Collection[str] = frozenset()
    ) -> Query:
        """Return the newest plan for `asks`, or none. Raises SpecError for a waiver of a fact that does not exist.

        satisfied: facts whose condition is satisfied.
        """
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
                plan = prefer_clean_plan(matrix, asks, waived, plan, satisfied, wanted)
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


def ask_requests(matrix: FactTable, asks: Sequence[Ask], waived: Collection[str] = ()) -> list[Request]:
    """Return `asks` as masks; each request's id is the number of its ask. A default that is set aside no longer means
    that a version without a label is one without: ``torch=2.8 channel=pytorch`` is 2.8.0+cu128."""
    labelled = {name for row in matrix.defaults if matrix.fact(row).id in waived for name in matrix.when(row)}
    masks = [requested_mask(matrix, ask.component, ask.constraint, labels=ask.component in labelled) for ask in asks]
    return [Request(str(at), ask.component, mask) for at, (ask, mask) in enumerate(zip(asks, masks, strict=True))]


def values_kept_out(matrix: FactTable, wanted: Sequence[Request]) -> dict[int, int]:
    """Return component → the values that are not picked, because the user did not request them or what they come with:
    the torch of NGC's images, unless the request names that torch, an image, or the channel; a torch for CPUs, unless
    the request names that torch."""
    asked = {matrix.number[request.component]: request.mask for request in wanted}
    kept: dict[int, int] = {}
    for number, mask, places in bound_values(matrix):
        if not places & asked.keys() and asked.get(number, ABSENT) & ~mask:
            kept[number] = kept.get(number, 0) | mask
    return kept


def overridden_defaults(matrix: FactTable, asks: Iterable[Ask]) -> frozenset[str]:
    """Return the ids of defaults about what a request names itself."""
    named = {ask.component for ask in asks}
    return frozenset(matrix.fact(row).id for row in matrix.defaults if named & matrix.then(row).keys())


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
