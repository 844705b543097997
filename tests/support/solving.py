"""One question to the solver, as tests ask it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envbuild.matrix.sat.clause_index import Clause
from envbuild.matrix.sat.solver import STEP_LIMIT, Search


@dataclass(frozen=True, slots=True)
class Answer:
    """`values`: one bit a variable, or None when there is no assignment. `used`: then the indexes of clauses that
    contradict each other (not the smallest such set)."""

    values: list[int] | None
    used: frozenset[int] = frozenset()


def solve(
    domains: Sequence[int], clauses: Sequence[Clause], order: Sequence[int], limit: int = STEP_LIMIT
) -> list[int] | None:
    """Return the lexicographically first assignment: variables in `order` (those that it leaves out come after, by
    number), lowest bit first; one bit a variable. None when there is none.
    Raise UndecidedError after `limit` steps."""
    return prove(domains, clauses, order, limit).values


def prove(domains: Sequence[int], clauses: Sequence[Clause], order: Sequence[int], limit: int = STEP_LIMIT) -> Answer:
    """`solve`, and why not. Raises UndecidedError after `limit` steps."""
    search = Search(domains, clauses)
    search.arrange(order)
    values = search.first(limit=limit)
    return Answer(values) if values is not None else Answer(None, search.used_clauses())
