"""Plans and conflicts against a SAT solver that knows the facts only as `values.matches` reads them.

The encoding shares nothing with the masks: one truth value for each value of each component, one for each constraint,
one for "this row holds", and the rules of docs/matrix.md as clauses."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pysat.card import CardEnc, EncType
from pysat.solvers import Cadical153

import envbuild.matrix
from envbuild.matrix import values
from envbuild.matrix.compiled import Matrix, compile_facts, natural
from envbuild.matrix.explain import Request, cores, picks
from envbuild.matrix.load import load_facts
from envbuild.matrix.masks import ABSENT
from envbuild.matrix.model import SOURCES, Component, Constraint, Fact, Facts, Question, Row, Source
from envbuild.matrix.problem import Problem

pytestmark = pytest.mark.unit

SHIPPED = Path(envbuild.matrix.__file__).parent / "facts"


class Oracle:
    """Facts as a SAT problem. Every clause of a row has the row's selector: it binds only where that is assumed."""

    def __init__(self, facts: Facts, known: Mapping[str, Sequence[str]]) -> None:
        self._facts = facts
        self._known = known
        self._new = count(1)
        self._solver = Cadical153()
        self._is = {(name, value): next(self._new) for name in known for value in (None, *known[name])}
        for name in known:
            literals = [self._is[name, value] for value in (None, *known[name])]
            top = next(self._new)
            one = CardEnc.equals(literals, 1, top_id=top, encoding=EncType.seqcounter)
            self._new = count(max(top, one.nv) + 1)
            self._solver.append_formula(one.clauses)
        self._constraints: dict[tuple[str, Constraint, bool], int] = {}
        self._holds: dict[int, int] = {}
        self.rows: list[tuple[Fact, Row]] = []
        self.selectors: dict[tuple[int, ...], int] = {}
        self.warnings: dict[int, int] = {}  # row → its selector
        for fact in sorted(facts.facts.values(), key=lambda fact: fact.id):
            self.rows += [(fact, row) for row in sorted(fact.rows, key=natural, reverse=True)]
        for number, (fact, _) in enumerate(self.rows):
            if fact.strength in ("hard", "warn"):
                self._row(number)
        self._disputes()

    def possible(self, selected: Iterable[int], chosen: Iterable[int]) -> bool:
        """Whether there is a plan with these selectors and these literals."""
        return bool(self._solver.solve(assumptions=[*selected, *chosen]))

    def request(self, request: Request, matrix: Matrix) -> int:
        """A literal that is true when a request is met."""
        number = matrix.number[request.component]
        allowed = matrix.values_of(number, request.mask)
        literal = next(self._new)
        texts = [self._is[request.component, value] for value in allowed]
        self._solver.add_clause(
            [-literal, *texts, *([self._is[request.component, None]] if request.mask & ABSENT else [])]
        )
        return literal

    def precedence(self, number: int) -> tuple[object, ...]:
        """The best source comes first."""
        fact, row = self.rows[number]
        texts = [sorted((name, item.text) for name, item in part.items()) for part in (row.when, row.then)]
        return SOURCES.index(fact.source.type), fact.id, *texts

    def value(self, name: str, value: str | None) -> int:
        return self._is[name, value]

    # --- what a row says

    def _true(self, name: str, constraint: Constraint, unsure: bool = False) -> int:
        """A literal for "the component is as the constraint has it"; `unsure`: or order says nothing about it."""
        key = name, constraint, unsure
        if key not in self._constraints:
            component = self._facts.components[name]
            literal = self._constraints[key] = next(self._new)
            yes = []
            for value in (None, *self._known[name]):
                answer = values.matches(component, constraint, value)
                met = answer is True or (unsure and answer is None)
                self._solver.add_clause([literal if met else -literal, -self._is[name, value]])
                if met:
                    yes.append(self._is[name, value])
            self._solver.add_clause([-literal, *yes])
        return self._constraints[key]

    def _said(self, fact: Fact, name: str, constraint: Constraint) -> list[int]:
        """Literals of which one must be true where a row of `fact` binds `name`."""
        absent = self._is[name, None]
        if fact.kind == "forbids":
            return [absent, -self._true(name, constraint)]
        met = self._true(name, constraint, unsure=True)
        if fact.kind == "limits":
            return [absent, met]
        component = self._facts.components[name]
        if not any(values.matches(component, constraint, value) is not False for value in self._known[name]):
            return [absent]
        there = next(self._new)  # met and present
        self._solver.append_formula([[-there, met], [-there, -absent]])
        return [there]

    def _hold(self, number: int) -> int:
        """A literal that may be true only where a row holds."""
        if number not in self._holds:
            literal = self._holds[number] = next(self._new)
            for name, constraint in self.rows[number][1].when.items():
                self._solver.add_clause([-literal, self._true(name, constraint)])
        return self._holds[number]

    def _unless(self, number: int) -> list[int]:
        return [-self._true(name, constraint) for name, constraint in self.rows[number][1].when.items()]

    def _row(self, number: int) -> None:
        fact, row = self.rows[number]
        selector = next(self._new)
        if fact.strength == "warn":
            self.warnings[number] = selector
        else:
            self.selectors[number,] = selector
        for name, constraint in row.then.items():
            better = [self._hold(other) for other in self._rivals(number, name, fact.strength)]
            said = self._said(fact, name, constraint)
            if fact.strength == "warn":  # never brings a component in
                said.append(self._is[name, None])
            self._solver.add_clause([-selector, *self._unless(number), *better, *said])

    def _rivals(self, number: int, name: str, strength: str = "hard") -> list[int]:
        """Rows that take the place of row `number` for `name`: of a better source, to the same question, saying
        otherwise."""
        fact, row = self.rows[number]
        return [
            other
            for other, (rival, theirs) in enumerate(self.rows)
            if fact.question
            and rival.question == fact.question
            and rival.id != fact.id
            and rival.strength == strength
            and SOURCES.index(rival.source.type) < SOURCES.index(fact.source.type)
            and name in theirs.then
            and self._allows(rival, name, theirs.then[name]) != self._allows(fact, name, row.then[name])
        ]

    def _allows(self, fact: Fact, name: str, constraint: Constraint) -> frozenset[str | None]:
        component = self._facts.components[name]
        answers = {value: values.matches(component, constraint, value) for value in (None, *self._known[name])}
        if fact.kind == "forbids":
            return frozenset(value for value, answer in answers.items() if value is None or answer is not True)
        met = frozenset(value for value, answer in answers.items() if answer is not False)
        if fact.kind != "limits" and met - {None}:
            return met - {None}
        return met | {None}

    def _disputes(self) -> None:
        groups: dict[tuple[str, frozenset[tuple[str, frozenset[str | None]]]], list[int]] = {}
        for number, (fact, row) in enumerate(self.rows):
            if fact.strength == "disputed" and fact.question and row.then:
                case = frozenset(
                    (
                        name,
                        frozenset(
                            value
                            for value in (None, *self._known[name])
                            if values.matches(self._facts.components[name], constraint, value)
                        ),
                    )
                    for name, constraint in row.when.items()
                )
                groups.setdefault((fact.question, case), []).append(number)
        for numbers in groups.values():
            if len({self.rows[number][0].id for number in numbers}) < 2:
                continue
            selector = self.selectors[tuple(numbers)] = next(self._new)
            satisfied = []
            for number in numbers:
                literal = next(self._new)
                satisfied.append(literal)
                for name, constraint in self.rows[number][1].then.items():
                    self._solver.add_clause([-literal, *self._said(self.rows[number][0], name, constraint)])
            settled = {
                rival
                for number in numbers
                for name in self.rows[number][1].then
                for rival in self._rivals(number, name)
                if all(
                    SOURCES.index(self.rows[rival][0].source.type) < SOURCES.index(self.rows[each][0].source.type)
                    for each in numbers
                )
            }
            better = [self._hold(rival) for rival in sorted(settled)]
            self._solver.add_clause([-selector, *self._unless(numbers[0]), *better, *satisfied])


def first_plan(oracle: Oracle, matrix: Matrix, requests: Sequence[Request]) -> dict[str, str] | None:
    """The lexicographically first plan, warning by warning and value by value."""
    chosen = [oracle.request(request, matrix) for request in requests]
    binding = list(oracle.selectors.values())
    if not oracle.possible(binding, chosen):
        return None
    for number in sorted(oracle.warnings, key=oracle.precedence):
        if oracle.possible([*binding, oracle.warnings[number]], chosen):
            binding.append(oracle.warnings[number])
    problem = Problem.of(matrix, requests)
    found: dict[str, str] = {}
    for number in problem.order(problem.search()):
        name = matrix.components[number].name
        for value in (None, *matrix.values[number]):
            literal = oracle.value(name, value)
            if oracle.possible(binding, [*chosen, literal]):
                chosen.append(literal)
                found |= {name: value} if value is not None else {}
                break
    return found


def known_of(matrix: Matrix) -> dict[str, tuple[str, ...]]:
    """Component → its values."""
    return {component.name: matrix.values[at] for at, component in enumerate(matrix.components)}


def compare(matrix: Matrix, oracle: Oracle, requests: Sequence[Request]) -> None:
    """Check one request."""
    plan = picks(matrix, requests)
    found = None if plan is None else matrix.named(plan.assignment)
    assert found == first_plan(oracle, matrix, requests)
    conflicts = cores(matrix, requests)
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


def request_at_random(matrix: Matrix, choice: random.Random, most: int) -> list[Request]:
    """Some components that people name, each free, with one value, or with a range of values as they are picked."""
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


# --- facts at random

VERSIONS = ("1.0", "1.5", "2.0", "2.0.1", "2.1.0", "2.1.0+cu118", "3.0", "3.0a0+12ab", "3.1rc1", "4.0")
OPERATORS = ("", "==", "!=", ">=", "<=", ">", "<")


def facts_at_random(seed: int) -> Facts:
    """A few components and facts of every kind, strength and source about them."""
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
            return values.constraint(component, choice.choice("*-" if absence else "*"))
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
            return values.constraint(
                component, {"cubins": choice.sample(["70", "80", "90a", "100f"], 2), "ptx": ["90"]}
            )
        return values.constraint(component, texts)

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
    for twin in twins:  # a dispute needs two who speak of the same case
        rows = [Row(row.when, {name: constraint(name, False) for name in row.then}, row.where) for row in twin.rows]
        facts[f"{twin.id}-twin"] = Fact(
            **{
                **{name: getattr(twin, name) for name in ("kind", "scope", "strength", "where", "question")},
                **{"id": f"{twin.id}-twin", "rows": tuple(rows), "source": choice.choice([*facts.values()]).source},
            }
        )
    return Facts(components, questions, facts)


@given(st.integers(0, 1 << 30))
@settings(max_examples=80)
def test_random_facts(seed: int) -> None:
    facts = facts_at_random(seed)
    matrix = compile_facts(facts)
    oracle = Oracle(facts, known_of(matrix))
    choice = random.Random(seed)
    for _ in range(4):
        compare(matrix, oracle, request_at_random(matrix, choice, 4))


def test_random_facts_are_of_both_kinds() -> None:
    """The facts above give plans and conflicts, disputes and rivals: none of the comparisons is empty."""
    seen = {"plan": 0, "conflict": 0, "groups": 0, "narrowed": 0}
    for seed in range(60):
        facts = facts_at_random(seed)
        matrix = compile_facts(facts)
        plan = picks(matrix, request_at_random(matrix, random.Random(seed), 4))
        seen["conflict" if plan is None else "plan"] += 1
        seen["groups"] += bool(matrix.groups)
        seen["narrowed"] += bool(matrix.narrowed)
    assert min(seen.values()) >= 6, seen


# --- the facts that ship with envbuild


@cache
def shipped() -> Facts:
    return load_facts([SHIPPED])


@cache
def oracle_of_shipped() -> tuple[Matrix, Oracle]:
    """The matrix, and the oracle, which learns from one request to the next."""
    matrix = compile_facts(shipped())
    return matrix, Oracle(shipped(), known_of(matrix))


@pytest.mark.parametrize("seed", range(25))
def test_random_requests_about_shipped_facts(seed: int) -> None:
    matrix, oracle = oracle_of_shipped()
    compare(matrix, oracle, request_at_random(matrix, random.Random(seed), 6))


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


def test_the_order_of_shipped_facts_does_not_matter() -> None:
    order = random.Random(7)
    mixed = {
        fact.id: replace(fact, rows=tuple(order.sample(fact.rows, len(fact.rows))))
        for fact in order.sample(list(shipped().facts.values()), len(shipped().facts))
    }
    other = compile_facts(replace(shipped(), facts=mixed))
    matrix, _ = oracle_of_shipped()
    for seed in range(40):
        given = request_at_random(matrix, random.Random(seed), 6)
        plans = [picks(each, given) for each in (matrix, other)]
        assert len({str(each and matrix.named(each.assignment)) for each in plans}) == 1
        if plans[0] is None:
            sizes = [
                [(len(core.requests), len({each.fact(row).id for row in core.rows})) for core in cores(each, given)[:1]]
                for each in (matrix, other)
            ]
            assert sizes[0] == sizes[1]
