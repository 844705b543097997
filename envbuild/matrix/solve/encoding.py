"""A request as clauses for the solver, and the plan that satisfies it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from envbuild.matrix.facts.clauses import program_of
from envbuild.matrix.facts.fact_table import HARD, FactTable
from envbuild.matrix.facts.soft_program import soft_program_of
from envbuild.matrix.sat.clause_index import EMPTY_INDEX, Clause, ClauseIndex, relevant_clauses
from envbuild.matrix.sat.minimal_core import FindCore
from envbuild.matrix.sat.solver import STEP_LIMIT, Search
from envbuild.matrix.solve.shared_search import order_of, shared_search

STEPS = 500_000  # for one question to the solver
SECONDS = 1.0  # for the search of one conflict


@dataclass(frozen=True, slots=True)
class Request:
    """`component` is to have a value within `mask`. `id` is the caller's."""

    id: str
    component: str
    mask: int


@dataclass(frozen=True, slots=True)
class Picks:
    """A plan: one value a component. `unheeded`: the rows of warnings that no plan can obey."""

    assignment: list[int]
    unheeded: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Core:
    """Requests and rows that contradict each other. `rows` are in the order in which one follows from another; `groups`
    are the same, with the rows of one fact together if they are many. `minimal`: it was proved that nothing of it can
    be left out. `aside`: the rows that are left out when other conflicts are searched."""

    requests: tuple[Request, ...]
    rows: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    aside: frozenset[int]
    minimal: bool

    @classmethod
    def of(cls, requests: Iterable[Request]) -> Core:
        """Return requests of which one has to change, for a reason that is not a row."""
        return cls(tuple(requests), (), (), frozenset(), False)

    def components(self) -> tuple[str, ...]:
        """Return the components of its requests."""
        return tuple(dict.fromkeys(request.component for request in self.requests))


# Of a clause: the number of a request, or the rows that it comes from; no row if it always holds.
Owner = int | tuple[int, ...]
ALWAYS: Owner = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """The clauses of requests and rows, each with its owner. `domains`: what components may be to begin with; `index`:
    of the first clauses."""

    matrix: FactTable
    requests: tuple[Request, ...]
    clauses: tuple[Clause, ...]
    owners: tuple[Owner, ...]
    domains: tuple[int, ...]
    index: ClauseIndex = EMPTY_INDEX

    @classmethod
    def of(
        cls,
        matrix: FactTable,
        requests: Sequence[Request],
        waived: Collection[str] = (),
        strengths: tuple[str, ...] = HARD,
        ignored: Collection[int] = frozenset(),
        free: Collection[int] = (),
    ) -> Problem:
        """Return the clauses of `requests` and of facts of these `strengths`, less the facts `waived` and the rows
        `ignored`. The components `free` may be there although nothing calls for them."""
        program = program_of(matrix, waived, strengths)
        if ignored:
            program = program.without(ignored)
        backing = [clause for number, clause in matrix.backing.items() if number not in free]
        asked = [((matrix.number[request.component], request.mask),) for request in requests]
        clauses = (*program.clauses, *backing, *asked)
        owners = (*program.owners, *(ALWAYS for _ in backing), *range(len(requests)))
        return cls(matrix, tuple(requests), clauses, owners, matrix.domains, program.index)

    def search(self, free: Iterable[int] = ()) -> Search:
        """Return the search for plans; assumptions will be about `free` components."""
        free = list(free)
        search = Search(self.domains, self.clauses, free, self.index)
        search.arrange(self.order(search, free))
        return search

    def order(self, search: Search, free: Iterable[int] = ()) -> list[int]:
        """Return the order in which components are decided."""
        asked = {self.matrix.number[request.component] for request in self.requests}.union(free)
        return order_of(asked, search.implied_domains()[: len(self.domains)])

    def relevant(self) -> Problem:
        """Return the problem without the rows that apply to every choice, as long as every request is satisfied."""
        domains = list(self.domains)
        for request in self.requests:
            domains[self.matrix.number[request.component]] &= request.mask
        if not all(domains):  # requests contradict each other
            return self.part(number for number, owner in enumerate(self.owners) if isinstance(owner, int))
        kept = {self.owners[number] for number in relevant_clauses(domains, self.clauses, self.index)} | {ALWAYS}
        return self.part(number for number, owner in enumerate(self.owners) if isinstance(owner, int) or owner in kept)

    def part(self, numbers: Iterable[int]) -> Problem:
        """Return the problem with only the clauses of these numbers."""
        chosen = sorted(numbers)
        clauses = tuple(self.clauses[number] for number in chosen)
        return replace(self, clauses=clauses, owners=tuple(self.owners[number] for number in chosen), index=EMPTY_INDEX)

    def contradict(self, member: Callable[[Owner], Hashable | None]) -> tuple[list[Hashable], FindCore[Hashable]]:
        """Return (what the clauses belong to, the question which of these contradict each other). `member` maps an
        owner to what its clause belongs to; clauses that belong to None always take part."""
        parts: dict[Hashable, list[int]] = {}
        for number, owner in enumerate(self.owners):
            parts.setdefault(member(owner), []).append(number)
        always = parts.pop(None, [])

        def ask(members: Sequence[Hashable]) -> set[Hashable] | None:
            numbers = [*always, *(number for one in members for number in parts[one])]
            search = Search(self.domains, [self.clauses[number] for number in numbers])
            if search.first(limit=STEPS) is not None:
                return None
            return {member(self.owners[numbers[used]]) for used in search.used_clauses()}

        return list(parts), ask


def pick_newest(
    matrix: FactTable,
    requests: Sequence[Request],
    waived: Collection[str] = (),
    limit: int = STEP_LIMIT,
    given: Sequence[Request] = (),
) -> Picks | None:
    """Return the newest plan: component by component, in `order_of`, the first value with which the rest can still be
    satisfied; what nothing requires is absent. Before that, as many warnings as possible are obeyed, those of better
    sources first. `given`: further requests, which other questions to the same search have too. None when the hard
    facts are not satisfiable. Raises UndecidedError."""
    soft = soft_program_of(matrix, frozenset(waived))
    shared = assumptions_of(matrix, given)

    def prepare(free: Collection[int]) -> Search:
        domains = (*matrix.domains, *(0b11 for _ in soft.rows))
        clauses = [*soft.clauses, *matrix.backing.values(), *((one,) for one in shared)]
        return Search(domains, clauses, free, soft.index)

    assumptions = assumptions_of(matrix, requests)
    search = shared_search(matrix, ("newest", frozenset(waived), *given), assumptions, prepare)
    first = len(matrix.components)
    asked = {number for number, _ in (*shared, *assumptions)}
    order = order_of(asked, search.implied_domains(assumptions)[:first])
    search.arrange([*range(first, first + len(soft.rows)), *order])
    values = search.first(assumptions, limit)
    if values is None:
        return None
    return Picks(values[:first], tuple(row for at, row in enumerate(soft.rows, first) if values[at] == 0b10))


def assumptions_of(matrix: FactTable, requests: Iterable[Request]) -> list[tuple[int, int]]:
    """Return requests as assumptions of a search."""
    return [(matrix.number[request.component], request.mask) for request in requests]
