"""One search for many questions about one table, which differ in their requests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

from envbuild.matrix.facts.atoms import ABSENT
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.sat.solver import Search


def shared_search(
    matrix: FactTable,
    key: Hashable,
    assumptions: Iterable[tuple[int, int]],
    prepare: Callable[[Collection[int]], Search],
    free: Collection[int] = (),
) -> Search:
    """Return the search of a table that `key` names, which `prepare` makes once: what it learns for one question helps
    the next. What `assumptions` require, and the components `free`, may be there although nothing calls for them."""
    needed = {number for number, mask in assumptions if not mask & ABSENT}.union(free)
    search = matrix.searches.get(key)
    if search is None or not needed <= search.free:
        search = matrix.searches[key] = prepare(needed | (search.free if search else frozenset()))
    return search


def effort_of(matrix: FactTable) -> int:
    """Return the steps that all searches of a table took so far."""
    return sum(search.effort for search in matrix.searches.values())


def order_of(asked: Collection[int], implied: Sequence[int]) -> list[int]:
    """Return what is requested, or must be present as the `implied` domains have it, in the order of ranks, then the
    rest: so that no component is left out at the price of an older one that the user requested."""
    first = [at for at, domain in enumerate(implied) if at in asked or not domain & ABSENT]
    return first + sorted(set(range(len(implied))).difference(first))
