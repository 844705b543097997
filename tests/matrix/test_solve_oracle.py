"""Plans and conflicts against the oracle: on facts at random, and on those that ship with envbuild."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.matrix.answer.conflict_core import find_cores
from envbuild.matrix.facts import values
from envbuild.matrix.facts.atoms import ABSENT
from envbuild.matrix.facts.compile import compile_facts
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.model import SOURCES, Component, Constraint, Fact, Facts, Question, Row, Source
from envbuild.matrix.solve.encoding import Request, pick_newest
from tests.support.examples import examples
from tests.support.sat_oracle import Oracle, first_plan, known_of
from tests.support.shipped_facts import shipped_facts, shipped_matrix

pytestmark = pytest.mark.unit


def compare(matrix: FactTable, oracle: Oracle, requests: Sequence[Request]) -> None:
    """Check one request."""
    plan = pick_newest(matrix, requests)
    found = None if plan is None else matrix.named(plan.assignment)
    assert found == first_plan(oracle, matrix, requests)
    conflicts = find_cores(matrix, requests)
    assert bool(conflicts) is (plan is None)
    for conflict in conflicts:
        asked = [oracle.request(request, matrix) for request in conflict.requests]
        rows = set(conflict.rows)
        parts = [selector for owners, selector in oracle.selectors.items() if rows.intersection(owners)]
        assert rows == {row for owners in oracle.selectors if rows.intersection(owners) for row in owners}
        assert not oracle.possible(parts, asked)
        assert conflict.minimal
        for members, rest in ((parts, asked), (asked, parts)):
            for one in members:
                assert oracle.possible([other for other in members if other != one], rest)


def request_at_random(matrix: FactTable, choice: random.Random, most: int) -> list[Request]:
    """Draw some components that users name, each free, with one value, or with a range of values as they are picked."""
    names = [component.name for component in matrix.components if not component.hidden]
    found = []
    for name in choice.sample(names, choice.randint(1, min(most, len(names)))):
        number = matrix.number[name]
        size = len(matrix.values[number])
        mask = matrix.full[number] & ~ABSENT
        if size and choice.random() < 0.7:
            start = choice.randrange(size)
            end = start if choice.random() < 0.7 else choice.randrange(start, size)
            mask = (2 << end + 1) - (2 << start)
        if mask:
            found.append(Request(str(len(found)), name, mask))
    return found


VERSIONS = ("1.0", "1.5", "2.0", "2.0.1", "2.1.0", "2.1.0+cu118", "3.0", "3.0a0+12ab", "3.1rc1", "4.0")
OPERATORS = ("", "==", "!=", ">=", "<=", ">", "<")


def facts_at_random(seed: int) -> Facts:
    """Return a few components and facts of every kind, strength and source about them."""
    choice = random.Random(seed)
    components = {}
    for at in range(choice.randint(3, 6)):
        kind = choice.choice(("version", "version", "version", "name", "sm"))
        pool = {"version": VERSIONS, "name": ("x", "y", "z"), "sm": ("7.0", "8.0", "8.6", "9.0", "10.0")}[kind]
        own = tuple(choice.sample(pool, choice.randint(1, len(pool))))
        components[f"c{at}"] = Component(f"c{at}", kind, "made up", rank=choice.randint(1, 4), values=own)
    questions = {f"q{at}": Question(f"q{at}", (), "made up") for at in range(2)}

    def constraint(name: str, absence: bool) -> Constraint:
        component = components[name]
        if choice.random() < 0.1:
            return values.parse_constraint(component, choice.choice("*-" if absence else "*"))
        texts = []
        for _ in range(choice.choice((1, 1, 2))):
            if component.kind == "name":
                texts.append(choice.choice(("", "!=")) + choice.choice(component.values))
            elif component.kind == "sm":
                texts.append(choice.choice(OPERATORS[1:]) + choice.choice(("7.0", "8.0", "9.0")))
            else:
                version = choice.choice(VERSIONS)
                texts.append(choice.choice(("", "==", "!=") if "+" in version else OPERATORS) + version)
        if component.kind == "sm" and choice.random() < 0.4:
            return values.parse_constraint(
                component, {"cubins": choice.sample(["70", "80", "90a", "100f"], 2), "ptx": ["90"]}
            )
        return values.parse_constraint(component, texts)

    facts = {}
    for at in range(choice.randint(2, 14)):
        rows = []
        for _ in range(choice.randint(1, 3)):
            names = choice.sample(sorted(components), choice.randint(1, min(3, len(components))))
            cut = choice.choice((1, 1, len(names) - 1)) if len(names) > 1 else choice.choice((0, 1))
            when = {name: constraint(name, True) for name in names[:cut]}
            rows.append(Row(when, {name: constraint(name, False) for name in names[cut:]}, f"made.yaml:{at}:1"))
        facts[f"f.{at}"] = Fact(
            id=f"f.{at}",
            kind=choice.choice(("provides", "requires", "limits", "limits", "forbids")),
            scope="runtime",
            strength=choice.choice(("hard", "hard", "hard", "disputed", "warn")),
            source=Source(choice.choice(SOURCES), "made up", "2026-11-21", "made up"),
            rows=tuple(rows),
            where=f"made.yaml:{at}:1",
            question=choice.choice(("", "q0", "q0", "q1")),
        )
    twins = [fact for fact in facts.values() if fact.strength == "disputed" and fact.question]
    for twin in twins:  # a dispute needs two facts about the same case
        rows = [Row(row.when, {name: constraint(name, False) for name in row.then}, row.where) for row in twin.rows]
        facts[f"{twin.id}-twin"] = Fact(
            **{
                **{name: getattr(twin, name) for name in ("kind", "scope", "strength", "where", "question")},
                **{"id": f"{twin.id}-twin", "rows": tuple(rows), "source": choice.choice([*facts.values()]).source},
            }
        )
    return Facts(components, questions, facts)


@pytest.mark.slow_unit
@given(st.integers(0, 1 << 30))
@examples(80)
def test_random_facts(seed: int) -> None:
    facts = facts_at_random(seed)
    matrix = compile_facts(facts)
    oracle = Oracle(facts, known_of(matrix))
    choice = random.Random(seed)
    for _ in range(4):
        compare(matrix, oracle, request_at_random(matrix, choice, 4))


@pytest.mark.slow_unit
def test_random_facts_are_of_both_kinds() -> None:
    """The facts above result in plans and conflicts, disputes and competing facts: none of the comparisons is empty."""
    seen = {"plan": 0, "conflict": 0, "groups": 0, "narrowed": 0}
    for seed in range(60):
        facts = facts_at_random(seed)
        matrix = compile_facts(facts)
        plan = pick_newest(matrix, request_at_random(matrix, random.Random(seed), 4))
        seen["conflict" if plan is None else "plan"] += 1
        seen["groups"] += bool(matrix.groups)
        seen["narrowed"] += bool(matrix.narrowed)
    assert min(seen.values()) >= 6, seen


@cache
def oracle_of_shipped() -> tuple[FactTable, Oracle]:
    """Return the matrix, and the oracle, which learns from one request to the next."""
    matrix = shipped_matrix()
    return matrix, Oracle(shipped_facts(), known_of(matrix))


@pytest.mark.slow_unit
@pytest.mark.parametrize("seed", range(25))
def test_random_requests_about_shipped_facts(seed: int) -> None:
    matrix, oracle = oracle_of_shipped()
    compare(matrix, oracle, request_at_random(matrix, random.Random(seed), 6))


@pytest.mark.slow_unit
@pytest.mark.parametrize("seed", range(10))
def test_newest_of_some_shipped_components(seed: int) -> None:
    """Requests without versions have plans more often, and longer ones."""
    matrix, oracle = oracle_of_shipped()
    names = [component.name for component in matrix.components if not component.hidden]
    free = [
        Request(str(at), name, matrix.full[matrix.number[name]] & ~ABSENT)
        for at, name in enumerate(random.Random(seed).sample(names, 4))
        if matrix.values[matrix.number[name]]
    ]
    compare(matrix, oracle, free)


@pytest.mark.slow_unit
def test_the_order_of_shipped_facts_does_not_matter() -> None:
    order = random.Random(7)
    mixed = {
        fact.id: replace(fact, rows=tuple(order.sample(fact.rows, len(fact.rows))))
        for fact in order.sample(list(shipped_facts().facts.values()), len(shipped_facts().facts))
    }
    other = compile_facts(replace(shipped_facts(), facts=mixed))
    matrix = shipped_matrix()
    for seed in range(40):
        given = request_at_random(matrix, random.Random(seed), 6)
        plans = [pick_newest(each, given) for each in (matrix, other)]
        assert len({str(each and matrix.named(each.assignment)) for each in plans}) == 1
        if plans[0] is None:
            sizes = [
                [
                    (len(core.requests), len({each.fact(row).id for row in core.rows}))
                    for core in find_cores(each, given)[:1]
                ]
                for each in (matrix, other)
            ]
            assert sizes[0] == sizes[1]
