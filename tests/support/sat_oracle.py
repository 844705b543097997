"""A SAT solver that knows the facts only as `values.matches` reads them.

The encoding shares nothing with the masks: one truth value for each value of each component, one for each constraint,
one for "this row holds", and the rules of docs/matrix.md as clauses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from pysat.card import CardEnc, EncType
from pysat.solvers import Cadical153

from envbuild.matrix.facts.atoms import ABSENT
from envbuild.matrix.facts.compile import row_sort_key
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.model import SOURCES, Constraint, Fact, Facts, Row
from envbuild.matrix.facts.value_match import matches
from envbuild.matrix.solve.encoding import Problem, Request


class Oracle:
    """Facts as a SAT problem. Every clause of a row has the row's selector: it binds only where that is assumed."""

    def __init__(self, facts: Facts, known: Mapping[str, Sequence[str]]) -> None:
        self._facts = facts
        self._known = known
        self._new = count(1)
        self._solver = Cadical153()
        self._last_plan: frozenset[int] = frozenset()
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
            self.rows += [(fact, row) for row in sorted(fact.rows, key=row_sort_key, reverse=True)]
        for number, (fact, _) in enumerate(self.rows):
            if fact.strength in ("hard", "warn"):
                self._row(number)
        self._disputes()
        self.every = next(self._new)  # assumes all selectors at once, where thousands of assumptions take long
        self._solver.append_formula([[-self.every, selector] for selector in self.selectors.values()])

    def possible(self, selected: Iterable[int], chosen: Iterable[int]) -> bool:
        """Return whether there is a plan with these selectors and these literals."""
        found = bool(self._solver.solve(assumptions=[*selected, *chosen]))
        self._last_plan = frozenset(self._solver.get_model()) if found else self._last_plan
        return found

    def meets_in_last_plan(self, literal: int) -> bool:
        """Return whether the plan that `possible` found last meets a literal: then there is one with it, too."""
        return literal in self._last_plan

    def request(self, request: Request, matrix: FactTable) -> int:
        """Return a literal that is true when a request is met."""
        number = matrix.number[request.component]
        allowed = matrix.values_of(number, request.mask)
        literal = next(self._new)
        texts = [self._is[request.component, value] for value in allowed]
        self._solver.add_clause(
            [-literal, *texts, *([self._is[request.component, None]] if request.mask & ABSENT else [])]
        )
        return literal

    def precedence(self, number: int) -> tuple[object, ...]:
        """Return the rank of a source, the best first."""
        fact, row = self.rows[number]
        texts = [sorted((name, item.text) for name, item in part.items()) for part in (row.when, row.then)]
        return SOURCES.index(fact.source.type), fact.id, *texts

    def value(self, name: str, value: str | None) -> int:
        return self._is[name, value]

    # --- clauses of a row

    def _true(self, name: str, constraint: Constraint, unsure: bool = False) -> int:
        """Return a literal for "the component satisfies the constraint"; `unsure`: or it cannot be compared."""
        key = name, constraint, unsure
        if key not in self._constraints:
            component = self._facts.components[name]
            literal = self._constraints[key] = next(self._new)
            yes = []
            for value in (None, *self._known[name]):
                answer = matches(component, constraint, value)
                satisfied = answer is True or (unsure and answer is None)
                self._solver.add_clause([literal if satisfied else -literal, -self._is[name, value]])
                if satisfied:
                    yes.append(self._is[name, value])
            self._solver.add_clause([-literal, *yes])
        return self._constraints[key]

    def _binding_literals(self, fact: Fact, name: str, constraint: Constraint) -> list[int]:
        """Literals of which one must be true where a row of `fact` binds `name`."""
        absent = self._is[name, None]
        if fact.kind == "forbids":
            return [absent, -self._true(name, constraint)]
        satisfied = self._true(name, constraint, unsure=True)
        if fact.kind == "limits":
            return [absent, satisfied]
        component = self._facts.components[name]
        if not any(matches(component, constraint, value) is not False for value in self._known[name]):
            return [absent]
        there = next(self._new)  # met and present
        self._solver.append_formula([[-there, satisfied], [-there, -absent]])
        return [there]

    def _hold(self, number: int) -> int:
        """Return a literal that may be true only where a row holds."""
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
            better = [self._hold(other) for other in self._better_rows(number, name, fact.strength)]
            literals = self._binding_literals(fact, name, constraint)
            if fact.strength == "warn":  # never adds a component
                literals.append(self._is[name, None])
            self._solver.add_clause([-selector, *self._unless(number), *better, *literals])

    def _better_rows(self, number: int, name: str, strength: str = "hard") -> list[int]:
        """Return rows that replace row `number` for `name`: of a better source, to the same question, with another
        answer."""
        fact, row = self.rows[number]
        return [
            other
            for other, (other_fact, theirs) in enumerate(self.rows)
            if fact.question
            and other_fact.question == fact.question
            and other_fact.id != fact.id
            and other_fact.strength == strength
            and SOURCES.index(other_fact.source.type) < SOURCES.index(fact.source.type)
            and name in theirs.then
            and self._allows(other_fact, name, theirs.then[name]) != self._allows(fact, name, row.then[name])
        ]

    def _allows(self, fact: Fact, name: str, constraint: Constraint) -> frozenset[str | None]:
        component = self._facts.components[name]
        answers = {value: matches(component, constraint, value) for value in (None, *self._known[name])}
        if fact.kind == "forbids":
            return frozenset(value for value, answer in answers.items() if value is None or answer is not True)
        satisfied = frozenset(value for value, answer in answers.items() if answer is not False)
        if fact.kind != "limits" and satisfied - {None}:
            return satisfied - {None}
        return satisfied | {None}

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
                            if matches(self._facts.components[name], constraint, value)
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
                    self._solver.add_clause([-literal, *self._binding_literals(self.rows[number][0], name, constraint)])
            resolved = {
                better_row
                for number in numbers
                for name in self.rows[number][1].then
                for better_row in self._better_rows(number, name)
                if all(
                    SOURCES.index(self.rows[better_row][0].source.type) < SOURCES.index(self.rows[each][0].source.type)
                    for each in numbers
                )
            }
            better = [self._hold(better_row) for better_row in sorted(resolved)]
            self._solver.add_clause([-selector, *self._unless(numbers[0]), *better, *satisfied])


def first_plan(oracle: Oracle, matrix: FactTable, requests: Sequence[Request]) -> dict[str, str] | None:
    """Return the lexicographically first plan, warning by warning and value by value."""
    chosen = [oracle.request(request, matrix) for request in requests]
    binding = [oracle.every]
    if not oracle.possible(binding, chosen):
        return None
    for number in sorted(oracle.warnings, key=oracle.precedence):
        warning = oracle.warnings[number]
        if oracle.meets_in_last_plan(warning) or oracle.possible([*binding, warning], chosen):
            binding.append(warning)
    problem = Problem.of(matrix, requests)
    found: dict[str, str] = {}
    for number in problem.order(problem.search()):
        name = matrix.components[number].name
        for value in (None, *matrix.values[number]):
            literal = oracle.value(name, value)
            if oracle.meets_in_last_plan(literal) or oracle.possible(binding, [*chosen, literal]):
                chosen.append(literal)
                found |= {name: value} if value is not None else {}
                break
    return found


def known_of(matrix: FactTable) -> dict[str, tuple[str, ...]]:
    """Component → its values."""
    return {component.name: matrix.values[at] for at, component in enumerate(matrix.components)}
