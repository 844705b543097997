"""The facts as bit masks: what the solver and the explanations work on.

Each component has its known values in the order in which they are picked. A mask is an int: bit 0 stands for "absent",
bit i+1 for the i-th value. An *assignment* holds one mask a component, by its number."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from envbuild.matrix import clauses, holding
from envbuild.matrix.atoms import ABSENT, NAMING, PRESENT_KINDS, Atom, constraint_of, masks, operands, reserve
from envbuild.matrix.clauses import Program
from envbuild.matrix.holding import Held
from envbuild.matrix.model import Component, Constraint, Fact, Question
from envbuild.matrix.rivals import Box, Claim

__all__ = ["ABSENT", "HARD", "HARDWARE", "HARD_AND_WARN", "PRESENT_KINDS", "WARN", "Held", "Line", "Matrix", "Program"]

T = TypeVar("T")
HARDWARE = 9  # Component.cost of what nobody changes for a version
HARD = ("hard",)
WARN = ("warn",)
HARD_AND_WARN = ("hard", "warn")


class Line(NamedTuple):
    """A row of fact number `fact`; `when` and `then` are numbers of atoms."""

    fact: int
    when: Sequence[int]
    then: Sequence[int]
    where: str
    note: str


@dataclass(frozen=True)
class Matrix:
    """Compiled facts. `facts` have no rows of their own here, `rows` are those of all of them; a row is known by its
    number. `narrowed`: (row, component) → where a row that yields to a better source still binds; `groups`: rows that
    dispute one thing, with where they do; `arising`: question → numbers of the atoms that must be true for it to be
    asked."""

    components: tuple[Component, ...]
    values: tuple[tuple[str, ...], ...]
    questions: Mapping[str, Question]
    facts: tuple[Fact, ...]
    atoms: tuple[Atom, ...]
    rows: tuple[Line, ...]
    narrowed: Mapping[tuple[int, int], Sequence[Box]]
    groups: tuple[tuple[tuple[int, ...], Sequence[Box]], ...]
    digest: str = ""
    arising: Mapping[str, Sequence[int]] = field(default_factory=dict)
    closed: frozenset[int] = frozenset()
    # What was worked out once; `closed` changes nothing of it, so that a matrix with other closed components shares it.
    _memo: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    def worked_out(self, key: Hashable, work: Callable[[], T]) -> T:
        """What `work` gives, once for each `key`."""
        if key not in self._memo:
            self._memo[key] = work()
        found: T = self._memo[key]
        return found

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
        """What each component may be before anything is asked: those that are `closed` are absent."""
        return tuple(ABSENT if at in self.closed else mask for at, mask in enumerate(self.full))

    def closing(self, closed: Iterable[int]) -> Matrix:
        """This matrix with nothing in the components `closed`."""
        twin = copy(self)  # with what was computed of it once, of which nothing depends on this
        object.__setattr__(twin, "closed", frozenset(closed))
        return twin

    def reachable(self, names: Iterable[str]) -> set[int]:
        """The numbers of `names` and of all that facts may bring when these are there, whatever their values: rows that
        call for a component, or that hold only while a package is absent."""
        found = {self.number[name] for name in names}
        size = -1
        while size != len(found):
            size = len(found)
            for needs, brings in self._calls:
                if needs <= found:
                    found |= brings
        return found

    @cached_property
    def _calls(self) -> set[tuple[frozenset[int], frozenset[int]]]:
        """(components that must be there, components that may then be) of all rows."""
        calls = set()
        for line in self.rows:
            fact = self.facts[line.fact]
            then = {self.atoms[at].component for at in line.then} if fact.kind in PRESENT_KINDS else set()
            if not fact.default:
                absent = {atom.component for atom in (self.atoms[at] for at in line.when) if atom.sure & ABSENT}
                then |= {at for at in absent if self.components[at].cost < HARDWARE}
            if then:
                calls.add((frozenset(self._present(line)), frozenset(then)))
        return calls

    def _present(self, line: Line) -> set[int]:
        """The components that must be there for a row to hold."""
        return {atom.component for atom in (self.atoms[at] for at in line.when) if not atom.sure & ABSENT}

    @cached_property
    def _bit(self) -> list[dict[str, int]]:
        return [{value: 2 << at for at, value in enumerate(values)} for values in self.values]

    def component(self, name: str) -> Component | None:
        """The component of that name."""
        number = self.number.get(name)
        return None if number is None else self.components[number]

    def bit(self, name: str, value: str | None) -> int:
        """The mask of one value (None: absent). Raises KeyError for one that is not known."""
        return ABSENT if value is None else self._bit[self.number[name]][value]

    def value(self, number: int, mask: int) -> str | None:
        """The first value of a mask of component `number`, in the order of picking; None for absent."""
        at = (mask & -mask).bit_length() - 2
        return self.values[number][at] if at >= 0 else None

    def values_of(self, number: int, mask: int) -> list[str]:
        """All values of a mask, in the order of picking."""
        return [value for at, value in enumerate(self.values[number]) if mask >> at + 1 & 1]

    def named(self, assignment: Sequence[int]) -> dict[str, str]:
        """Component → value of all that are present."""
        found = {}
        for number, mask in enumerate(assignment):
            value = self.value(number, mask)
            if value is not None:
                found[self.components[number].name] = value
        return found

    def assignment(self, chosen: Mapping[str, str]) -> list[int]:
        """The assignment in which exactly `chosen` is present. Raises KeyError for an unknown name or value."""
        bits = [ABSENT] * len(self.components)
        for name, value in chosen.items():
            bits[self.number[name]] = self.bit(name, value)
        return bits

    def mask(self, name: str, constraint: Constraint) -> int:
        """The known values (or absence) of which `constraint` is true."""
        key = "mask", name, constraint
        if key not in self._memo:
            number = self.number[name]
            self._memo[key] = masks(self.components[number], constraint, (None, *self.values[number]))[0]
        mask: int = self._memo[key]
        return mask

    def asked(self, name: str, constraint: Constraint, *, labels: bool = False) -> int:
        """What a request for `constraint` asks for: its mask; but of a bare version that is itself a release, that one
        alone, and where no label is named only builds without one, if there are any (``torch>=2.8`` is not
        ``2.8.0+cu126``). `labels`: of a range, builds with one are meant too."""
        if len(constraint.alternatives) == 1 and len(constraint.alternatives[0]) == 1:
            term = constraint.alternatives[0][0]
            if term.op == "in" and (bit := self._bit[self.number[name]].get(term.operand)):
                return bit
        mask = self.mask(name, constraint)
        if labels or "+" in constraint.text or constraint.text in ("*", "-"):
            return mask
        plain = mask & ~self.labelled(self.number[name])
        return plain or mask

    def labelled(self, number: int) -> int:
        """The mask of a component's builds with a local label."""
        if self.components[number].kind != "version":
            return 0
        key = "labelled", number
        if key not in self._memo:
            self._memo[key] = sum(2 << at for at, value in enumerate(self.values[number]) if "+" in value)
        labelled: int = self._memo[key]
        return labelled

    def unheard(self, name: str, constraint: Constraint) -> tuple[str, ...]:
        """The versions that `constraint` names, when no known value meets it: what `extended` is for."""
        component = self.components[self.number[name]]
        if component.kind == "name" or self.mask(name, constraint):
            return ()
        return tuple(dict.fromkeys(operands(component, constraint, ("==", "in"))))

    def together(self, name: str, constraints: Sequence[Constraint]) -> bool:
        """Whether one value, known or named by them, meets all `constraints`."""
        component = self.components[self.number[name]]
        known: list[str | None] = [None, *self.values[self.number[name]]]
        if component.kind != "name":
            known += [value for given in constraints for value in operands(component, given, NAMING)]
        common = (1 << len(known)) - 1
        for constraint in constraints:
            common &= masks(component, constraint, known)[0]
        return bool(common)

    def extended(self, added: Mapping[str, Collection[str]]) -> Matrix:
        """This matrix with values that nobody knew (canonical ones); they are picked last."""
        new = {
            self.number[name]: [value for value in dict.fromkeys(given) if value not in self._bit[self.number[name]]]
            for name, given in added.items()
        }
        new = {number: given for number, given in new.items() if given}
        if not new:
            return self
        known = tuple((*values, *new.get(at, ())) for at, values in enumerate(self.values))
        atoms = []
        for atom in self.atoms:
            if given := new.get(atom.component):
                sure, maybe = masks(self.components[atom.component], constraint_of(atom), given)
                shift = len(self.values[atom.component]) + 1
                atom = atom._replace(sure=atom.sure | sure << shift, maybe=atom.maybe | maybe << shift)
            atoms.append(atom)
        return replace(self, values=known, atoms=tuple(atoms), _memo={}).settled()

    def alike(self, number: int) -> dict[int, int]:
        """Each bit of a component → the mask of all values of which the rows say the same."""
        key = "alike", number
        if key not in self._memo:
            classes = [self.full[number] & ~ABSENT]
            alone: list[int] = []
            for mask in {mask for atom in self.atoms if atom.component == number for mask in (atom.sure, atom.maybe)}:
                parts = [part for whole in classes for part in (whole & mask, whole & ~mask) if part]
                classes = [part for part in parts if part & part - 1]
                alone += [part for part in parts if not part & part - 1]
            bits = [2 << at for at in range(len(self.values[number]))]
            several = {bit: whole for whole in classes for bit in bits if whole & bit}
            self._memo[key] = {bit: bit for bit in alone} | several
        alike: dict[int, int] = self._memo[key]
        return alike

    def releases(self, number: int, also: int = 0) -> list[int]:
        """The bits of a component's values from the oldest to the newest: of versions the plain releases, without
        labels and flavours, and those of the mask `also`. Names have no order: the last one first."""
        component, values = self.components[number], self.values[number]
        bits = {value: 2 << at for at, value in enumerate(values)}
        if component.kind == "name":
            return list(reversed(bits.values()))
        if component.kind == "sm":
            return [bits[value] for value in sorted(values, key=lambda value: [int(part) for part in value.split(".")])]
        from envbuild.matrix import version

        plain = [value for value, bit in bits.items() if bit & also or not reserve(value)]
        return [bits[value] for value in sorted(plain, key=version.key)]

    # --- rows

    @cached_property
    def defaults(self) -> tuple[int, ...]:
        """The rows of facts that only say what is meant when nobody says otherwise."""
        return tuple(row for row, line in enumerate(self.rows) if self.facts[line.fact].default)

    def fact(self, row: int) -> Fact:
        """The fact that a row belongs to."""
        return self.facts[self.rows[row].fact]

    def when(self, row: int) -> dict[str, str]:
        """Component → text of the constraints under which a row holds."""
        return self._texts(self.rows[row].when)

    def then(self, row: int) -> dict[str, str]:
        """Component → text of what a row says."""
        return self._texts(self.rows[row].then)

    def _texts(self, numbers: Iterable[int]) -> dict[str, str]:
        atoms = (self.atoms[number] for number in numbers)
        return {self.components[atom.component].name: atom.text for atom in atoms}

    def needs(self, row: int) -> set[int]:
        """The numbers of the components under which a row holds."""
        return {self.atoms[number].component for number in self.rows[row].when}

    def touches(self, row: int) -> set[int]:
        """The numbers of all components that a row names."""
        claim = self.claim(row)
        return {*claim.when, *claim.allowed}

    def claim(self, row: int) -> Claim:
        """What a row says, as masks."""
        key = "claim", row
        if key not in self._memo:
            line = self.rows[row]
            fact = self.facts[line.fact]
            when = {self.atoms[number].component: self.atoms[number].sure for number in line.when}
            atoms = (self.atoms[number] for number in line.then)
            said = {atom.component: self.allowed(fact.kind, atom) for atom in atoms}
            self._memo[key] = Claim(row, fact, when, said)
        claim: Claim = self._memo[key]
        return claim

    def allowed(self, kind: str, atom: Atom) -> int:
        """What a fact of that kind lets a component be. What order says nothing about is let pass; and where no known
        value is as a fact requires, the component may still be absent: the facts know too little to refuse."""
        if kind == "forbids":
            return self.full[atom.component] & ~atom.sure | ABSENT
        allowed = atom.sure | atom.maybe
        if kind in PRESENT_KINDS and allowed & ~ABSENT:
            return allowed & ~ABSENT
        return allowed | ABSENT

    def holding(self, assignment: Sequence[int], waived: Collection[str] = ()) -> list[Held]:
        """The rows that hold in an assignment, with what they find wrong; without those of the facts `waived`."""
        return holding.holding(self, assignment, waived)

    # --- clauses

    def program(self, waived: Collection[str] = (), strengths: tuple[str, ...] = HARD) -> Program:
        """The clauses of all rows of these strengths, without those of the facts `waived` (whose rivals then bind in
        their place). What is disputed binds as far as all who dispute agree, whatever is waived of it but all."""
        key = "program", frozenset(waived), strengths
        if key not in self._memo:
            rivals = self.rivals(waived)
            self._memo[key] = (
                clauses.program(self, rivals, strengths)
                if key[1] == rivals
                else clauses.without(self.program(rivals, strengths), self._rows_of(key[1] - rivals))
            )
        program: Program = self._memo[key]
        return program

    def rivals(self, waived: Collection[str]) -> frozenset[str]:
        """Those of the facts `waived` in whose place others bind; the others only leave gaps in the program of all."""
        return frozenset(fact.id for fact in self.facts if fact.question and fact.id in waived)

    def _rows_of(self, ids: Collection[str]) -> set[int]:
        numbers = {at for at, fact in enumerate(self.facts) if fact.id in ids}
        return {row for row, line in enumerate(self.rows) if line.fact in numbers} if numbers else set()

    def settled(self) -> Matrix:
        """This matrix with its rivals compared anew."""
        narrowed, groups = clauses.rivalry(self)
        return replace(self, narrowed=narrowed, groups=groups, _memo={})
