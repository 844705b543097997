"""The solver: the first assignment, what contradicts what, and its limits, against looking at every assignment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.matrix.sat.clause_index import Clause, ClauseIndex, relevant_clauses
from envbuild.matrix.sat.solver import Search, UndecidedError
from tests.support.examples import examples
from tests.support.solving import prove, solve

pytestmark = pytest.mark.unit

MAX_BITS = 4


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], list[Clause], list[int]]:
    """(domains, clauses, order) small enough to try every assignment."""
    count = draw(st.integers(1, 4))
    full = (1 << draw(st.integers(2, MAX_BITS))) - 1
    domains = draw(st.lists(st.integers(1, full), min_size=count, max_size=count))
    variables = st.lists(st.integers(0, count - 1), min_size=1, max_size=3, unique=True)
    clauses = draw(st.lists(variables, max_size=14))
    masked = [tuple((variable, draw(st.integers(0, full))) for variable in clause) for clause in clauses]
    return domains, masked, draw(st.lists(st.integers(0, count - 1), unique=True))


def every(domains: Sequence[int], clauses: Sequence[Clause], order: Sequence[int]) -> list[int] | None:
    """Return the first assignment by trying all."""
    whole = [*order, *(variable for variable in range(len(domains)) if variable not in order)]
    for bits in product(*([1 << bit for bit in range(MAX_BITS) if domains[at] >> bit & 1] for at in whole)):
        chosen = dict(zip(whole, bits, strict=True))
        if all(any(chosen[variable] & mask for variable, mask in clause) for clause in clauses):
            return [chosen[variable] for variable in range(len(domains))]
    return None


@pytest.mark.slow_unit
@given(problems())
@examples(150)
def test_the_first_assignment_or_the_clauses_that_exclude_one(given: tuple[list[int], list[Clause], list[int]]) -> None:
    domains, clauses, order = given
    answer = prove(domains, clauses, order)
    assert answer.values == every(domains, clauses, order)
    if answer.values is None:
        assert every(domains, [clauses[number] for number in answer.used], order) is None


@given(problems(), st.data())
@examples(80)
def test_learned_clauses_do_not_change_the_next_answer(
    given: tuple[list[int], list[Clause], list[int]], data: st.DataObject
) -> None:
    domains, clauses, order = given
    search = Search(domains, clauses, free=range(len(domains)))
    search.arrange(order)
    for _ in range(4):
        free = data.draw(st.lists(st.integers(0, len(domains) - 1), unique=True))
        assumptions = {variable: data.draw(st.integers(1, (1 << MAX_BITS) - 1)) for variable in free}
        limited = [domain & assumptions.get(at, domain) for at, domain in enumerate(domains)]
        assert search.first(list(assumptions.items())) == every(limited, clauses, order)


@given(problems(), st.data())
@examples(80)
def test_implied_domains_depend_on_their_own_question_alone(
    given: tuple[list[int], list[Clause], list[int]], data: st.DataObject
) -> None:
    domains, clauses, _ = given
    search = Search(domains, clauses, free=range(len(domains)))
    literals = st.tuples(st.integers(0, len(domains) - 1), st.integers(1, (1 << MAX_BITS) - 1))
    shared = data.draw(st.lists(literals, max_size=2))
    for _ in range(4):
        assumptions = [*shared, *data.draw(st.lists(literals, max_size=2))]
        alone = Search(domains, clauses, free=range(len(domains)))
        first = alone.first(assumptions)
        assert search.first(assumptions) == first
        if first is not None:  # up to a contradiction, the way to it counts
            fresh = Search(domains, clauses, free=range(len(domains)))
            assert search.implied_domains(assumptions) == fresh.implied_domains(assumptions)


@given(problems())
@examples(80)
def test_irrelevant_clauses_can_be_removed(given: tuple[list[int], list[Clause], list[int]]) -> None:
    domains, clauses, order = given
    kept = [clauses[number] for number in relevant_clauses(domains, clauses)]
    assert every(domains, kept, order) == every(domains, clauses, order)


@given(problems(), st.integers(0, 14))
@examples(80)
def test_an_index_changes_no_answer(given: tuple[list[int], list[Clause], list[int]], count: int) -> None:
    domains, clauses, order = given
    index = ClauseIndex.of(clauses[:count])
    assert relevant_clauses(domains, clauses, index) == relevant_clauses(domains, clauses)
    search = Search(domains, clauses, index=index)
    search.arrange(order)
    assert search.first() == solve(domains, clauses, order)


def test_clauses_about_unrequested_variables_are_left_out() -> None:
    # 0: requested. Rows: 0=b requires 1; 1=b requires 2; 3=b requires 4.
    clauses: list[Clause] = [((0, 0b011), (1, 0b110)), ((1, 0b011), (2, 0b110)), ((3, 0b011), (4, 0b110))]
    assert relevant_clauses([0b100, 7, 7, 7, 7], clauses) == [0, 1]
    assert relevant_clauses([0b010, 7, 7, 7, 7], clauses) == []
    assert solve([0b100, 7, 7, 7, 7], clauses, []) == [4, 2, 1, 1, 1]


def test_the_order_decides_which_assignment_is_first() -> None:
    clauses: list[Clause] = [((0, 0b10), (1, 0b10))]
    assert solve([3, 3], clauses, [0, 1]) == [1, 2]
    assert solve([3, 3], clauses, [1, 0]) == [2, 1]


def test_a_domain_without_values_is_a_contradiction() -> None:
    assert prove([0, 3], [], []).values is None
    assert solve([2], [()], []) is None


def test_long_chains_need_no_recursion() -> None:
    count = 5000
    chain: list[Clause] = [((at, 0b01), (at + 1, 0b10)) for at in range(count - 1)]
    assert solve([2] + [3] * (count - 1), chain, range(count)) == [2] * count
    assert prove([2] + [3] * (count - 1), [*chain, ((count - 1, 1),)], ()).used == frozenset(range(count))


def pigeons(holes: int) -> tuple[list[int], list[Clause]]:
    """Return one pigeon more than holes: contradictory, and every proof by clauses like these is long."""
    clauses = [
        tuple((pigeon, (1 << holes) - 1 ^ 1 << hole) for pigeon in pair)
        for pair in combinations(range(holes + 1), 2)
        for hole in range(holes)
    ]
    return [(1 << holes) - 1] * (holes + 1), clauses


def test_too_many_steps_raise_an_error() -> None:
    domains, clauses = pigeons(5)
    assert solve(domains, clauses, ()) is None
    with pytest.raises(UndecidedError):
        solve(domains, clauses, (), limit=500)


def test_learned_clauses_exclude_more_than_the_decisions_themselves() -> None:
    domains, clauses = pigeons(6)
    assert solve(domains, clauses, (), limit=100_000) is None  # 52,420; clauses of decisions alone: 256,416


def test_a_question_without_an_answer_leaves_the_search_whole() -> None:
    domains, clauses = pigeons(5)
    search = Search([*domains, 7], clauses)
    for _ in range(3):
        with pytest.raises(UndecidedError):
            search.first(limit=500)
    assert search.first() is None
    assert search.first([(6, 1)]) is None


def test_decisions_are_recorded() -> None:
    search = Search([6, 7, 7], [((0, 0b1011), (1, 0b110)), ((0, 0b1101), (1, 0b110)), ((1, 0b001), (2, 0b010))])
    search.arrange([0, 1, 2])
    assert search.first() == [2, 2, 2]
    assert search.decision_variables() == [0, 1]
    assert search.implied_domains() == [6, 7, 7]
