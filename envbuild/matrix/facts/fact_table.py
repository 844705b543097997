"""The facts as bit masks: what the solver and the explanations work on.

Each component has its known values in the order in which they are picked. A mask is an int: bit 0 is "absent",
bit i+1 is the i-th value. An *assignment* holds one mask a component, by its number."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from envbuild.matrix.facts.atoms import ABSENT, Atom
from envbuild.matrix.facts.model import Component, Constraint, Fact, Question
from envbuild.matrix.facts.precedence import Box, Claim
from envbuild.matrix.sat.clause_index import Clause
from envbuild.matrix.sat.program import Program, SoftProgram
from envbuild.matrix.sat.solver import Search

HARDWARE = 9  # Component.cost of what no user changes for a version
PURPOSE = 8  # of what is compiled or computed for that hardware: it is proposed where hardware is
HARD = ("hard",)
WARN = ("warn",)
HARD_AND_WARN = ("hard", "warn")


# A row, and (component, values with which it does not hold) of its conditions but the narrowest.
GuardedRow = tuple[int, tuple[tuple[int, int], ...]]


class CompiledRow(NamedTuple):
    """A row of fact number `fact`; `when` and `then` are numbers of atoms."""

    fact: int
    when: Sequence[int]
    then: Sequence[int]
    where: str
    note: str


class EvaluatedRow(NamedTuple):
    """A row that holds in an assignment. `fails`: the components of its `then` that are not as it requires; `unsure`:
    those that cannot be ordered. `yields`: component → the row of a better source that binds it instead (such a
    component is not in `fails`)."""

    row: int
    fails: tuple[str, ...]
    unsure: tuple[str, ...]
    yields: Mapping[str, int]


@dataclass(slots=True)
class Caches:
    """Results that were computed once for a table, each by a function of this package. `closed` changes nothing of it,
    so that tables which differ in nothing else share it."""

    masks: dict[tuple[str, Constraint], int] = field(default_factory=dict)
    labelled: dict[int, int] = field(default_factory=dict)
    interchangeable: dict[int, Mapping[int, int]] = field(default_factory=dict)
    claims: dict[int, Claim] = field(default_factory=dict)
    programs: dict[tuple[frozenset[str], tuple[str, ...]], Program] = field(default_factory=dict)
    soft_programs: dict[frozenset[str], SoftProgram] = field(default_factory=dict)
    evaluated: dict[tuple[tuple[int, ...], frozenset[str]], list[EvaluatedRow]] = field(default_factory=dict)
    satisfied: dict[int, EvaluatedRow] = field(default_factory=dict)
    uncertain: dict[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    arising: Sequence[tuple[Question, tuple[int, ...], Sequence[tuple[int, int]]]] | None = None
    guards: Sequence[int] | None = None
    guarded: Mapping[int, Sequence[tuple[GuardedRow, int]]] | None = None
    candidates: dict[tuple[int, int], Sequence[GuardedRow]] = field(default_factory=dict)
    decided: dict[tuple[int, int], Sequence[tuple[str, int, int]]] = field(default_factory=dict)
    concerned: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    relatable: dict[tuple[tuple[int, int], tuple[tuple[int, int, bool], ...]], bool] = field(default_factory=dict)
    evidence: dict[int, Mapping[int, int]] = field(default_factory=dict)
    related: Mapping[tuple[int, int], Sequence[int]] | None = None
    ends: dict[tuple[int, str], int] = field(default_factory=dict)
    calls: set[tuple[frozenset[int], frozenset[int]]] | None = None
    backing: Mapping[int, Clause] | None = None
    bound: Sequence[tuple[int, int, frozenset[int]]] | None = None


@dataclass(frozen=True)
class FactTable:
    """Compiled facts. `facts` have no rows of their own here, `rows` are those of all of them; a row is known by its
    number. `narrowed`: (row, component) → where a row that yields to a better source still binds; `groups`: rows that
    dispute one thing, with where they do; `arising`: question → numbers of the atoms that must be true for it to
    arise; `independent`: pairs that need no fact, with the reason; `through`: pair → components through which one
    matters to the other; `known_to`: component → date → its newest version then; `closed`: the components that remain
    absent; `kept_out`: component → values that are not picked; `added`: component → the values that only a request
    names; `backing`: component → the clause that it meets unless it is requested."""

    components: tuple[Component, ...]
    values: tuple[tuple[str, ...], ...]
    questions: Mapping[str, Question]
    facts: tuple[Fact, ...]
    atoms: tuple[Atom, ...]
    rows: tuple[CompiledRow, ...]
    narrowed: Mapping[tuple[int, int], Sequence[Box]]
    groups: tuple[tuple[tuple[int, ...], Sequence[Box]], ...]
    digest: str = ""
    arising: Mapping[str, Sequence[int]] = field(default_factory=dict)
    independent: Mapping[tuple[int, int], str] = field(default_factory=dict)
    through: Mapping[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    narrowed_pairs: Mapping[tuple[int, int], tuple[int, int, tuple[int, ...]]] = field(default_factory=dict)
    known_to: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    closed: frozenset[int] = frozenset()
    kept_out: Mapping[int, int] = field(default_factory=dict)
    added: Mapping[int, int] = field(default_factory=dict)
    backing: Mapping[int, Clause] = field(default_factory=dict)
    caches: Caches = field(default_factory=Caches, compare=False, repr=False)
    # of this table alone, with `closed` and `backing`: prepared searches, by what their clauses depend on
    searches: dict[Hashable, Search] = field(default_factory=dict, init=False, compare=False, repr=False)

    def closing(
        self, closed: Iterable[int], backing: Mapping[int, Clause], kept_out: Mapping[int, int] | None = None
    ) -> FactTable:
        """Return this table with nothing in the components `closed`, without the values `kept_out`, and with the
        clauses `backing`."""
        twin = copy(self)  # with what was computed of it once, of which nothing depends on this
        object.__setattr__(twin, "closed", frozenset(closed))
        object.__setattr__(twin, "backing", backing)
        object.__setattr__(twin, "kept_out", kept_out or {})
        object.__setattr__(twin, "searches", {})
        return twin

    # --- components and values

    @cached_property
    def number(self) -> Mapping[str, int]:
        """Name of a component → its number. Numbers follow (rank, name)."""
        return {component.name: at for at, component in enumerate(self.components)}

    @cached_property
    def full(self) -> tuple[int, ...]:
        """The mask of each component that leaves everything open."""
        return tuple((1 << len(values) + 1) - 1 for values in self.values)

    @property
    def domains(self) -> tuple[int, ...]:
        """The values of each component before any request: components in `closed` are absent."""
        return tuple(
            ABSENT if at in self.closed else mask & ~self.kept_out.get(at, 0) for at, mask in enumerate(self.full)
        )

    @cached_property
    def bits(self) -> tuple[dict[str, int], ...]:
        """For each component: value → its mask."""
        return tuple({value: 2 << at for at, value in enumerate(values)} for values in self.values)

    def component(self, name: str) -> Component | None:
        """Return the component of that name."""
        number = self.number.get(name)
        return None if number is None else self.components[number]

    def bit(self, name: str, value: str | None) -> int:
        """Return the mask of one value (None: absent). Raise KeyError for one that is not known."""
        return ABSENT if value is None else self.bits[self.number[name]][value]

    def value(self, number: int, mask: int) -> str | None:
        """Return the first value of a mask of component `number`, in the order of picking; None for absent."""
        at = (mask & -mask).bit_length() - 2
        return self.values[number][at] if at >= 0 else None

    def values_of(self, number: int, mask: int) -> list[str]:
        """Return all values of a mask, in the order of picking."""
        values, found = self.values[number], []
        mask &= self.full[number] & ~ABSENT
        while mask:  # bit by bit: most masks have few
            low = mask & -mask
            found.append(values[low.bit_length() - 2])
            mask ^= low
        return found

    def named(self, assignment: Sequence[int]) -> dict[str, str]:
        """Return component → value of all that are present."""
        found = {}
        for number, mask in enumerate(assignment):
            value = self.value(number, mask)
            if value is not None:
                found[self.components[number].name] = value
        return found

    def assignment(self, chosen: Mapping[str, str]) -> list[int]:
        """Return the assignment in which exactly `chosen` is present. Raise KeyError for an unknown name or value."""
        bits = [ABSENT] * len(self.components)
        for name, value in chosen.items():
            bits[self.number[name]] = self.bit(name, value)
        return bits

    # --- rows

    @cached_property
    def defaults(self) -> tuple[int, ...]:
        """The rows of default facts, which hold where a request does not name another value."""
        return tuple(row for row, line in enumerate(self.rows) if self.facts[line.fact].default)

    @cached_property
    def row_questions(self) -> tuple[str, ...]:
        """The question of each row, empty where its fact answers none."""
        return tuple(self.facts[line.fact].question for line in self.rows)

    @cached_property
    def question_rows(self) -> Mapping[str, Sequence[int]]:
        """Question → the rows that answer it."""
        found: dict[str, list[int]] = {}
        for row, question in enumerate(self.row_questions):
            found.setdefault(question, []).append(row)
        return found

    def fact(self, row: int) -> Fact:
        """Return the fact that a row belongs to."""
        return self.facts[self.rows[row].fact]

    def when(self, row: int) -> dict[str, str]:
        """Return component → text of the constraints under which a row holds."""
        return self._texts(self.rows[row].when)

    def then(self, row: int) -> dict[str, str]:
        """Return component → text of the constraints that a row requires."""
        return self._texts(self.rows[row].then)

    def _texts(self, numbers: Iterable[int]) -> dict[str, str]:
        atoms = (self.atoms[number] for number in numbers)
        return {self.components[atom.component].name: atom.text for atom in atoms}
