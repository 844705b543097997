"""Constraints evaluated: of which values of their component they are true.

A mask is an int with a bit for each value of a component, in the order in which values are picked: bit 0 stands for
"absent", bit i+1 for the i-th value."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from envbuild.matrix.facts.model import Component, Constraint, Term

ABSENT = 1  # the mask of "absent"
PRESENT_KINDS = ("provides", "requires")  # kinds of facts that call for a component
NAMING_OPERATORS = ("==", "in", ">=", "<=", ">", "<")  # operators whose operand is itself a version


class Atom(NamedTuple):
    """One constraint on one component (by number): the values of which it is true (`sure`) and those of which order
    says nothing (`maybe`). `terms`: an alternative a line, its terms ("operator operand") between tabs."""

    component: int
    text: str
    terms: str
    sure: int
    maybe: int


def evaluate_constraint(component: Component, constraint: Constraint, known: Iterable[str | None]) -> tuple[int, int]:
    """(values of `known` that meet the constraint, those of which order says nothing), the first as bit 0."""
    from envbuild.matrix.facts.value_match import (
        matches,  # only where facts or requests are new: most queries compare masks
    )

    sure = maybe = 0
    for at, value in enumerate(known):
        answer = matches(component, constraint, value)
        sure |= bool(answer) << at
        maybe |= (answer is None) << at
    return sure, maybe


def constraint_of(atom: Atom) -> Constraint:
    """The constraint that an atom was made of."""
    alternatives = [[term.partition(" ") for term in line.split("\t")] for line in atom.terms.split("\n")]
    return Constraint(tuple(tuple(Term(op, operand) for op, _, operand in terms) for terms in alternatives), atom.text)


def format_terms(constraint: Constraint) -> str:
    """The `terms` of an atom made of `constraint`."""
    lines = [[f"{term.op} {term.operand}" for term in terms] for terms in constraint.alternatives]
    return "\n".join("\t".join(line) for line in lines)


def operands(component: Component, constraint: Constraint, operators: Collection[str]) -> Iterable[str]:
    """The values that `constraint` names with these operators."""
    for terms in constraint.alternatives:
        for term in terms:
            if term.op in operators and term.operand:
                yield term.operand


def pick_penalty(value: str) -> int:
    """How far a version stands back when versions are picked: 1 for builds with a local label (``+cu126``), 2 for
    pre-releases and flavours (``3.13t``), 3 for what cannot be compared (NGC's builds). They are taken only when
    something asks for them."""
    from envbuild.matrix.facts import version

    if not version.is_comparable(value):
        return 3
    if version.is_prerelease(value) or version.parse(value).flavour:
        return 2
    return int("+" in value)
