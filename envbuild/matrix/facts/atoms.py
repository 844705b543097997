"""Constraints evaluated: of which values of their component they are true.

A mask is an int with a bit for each value of a component, in the order in which values are picked: bit 0 is
"absent", bit i+1 is the i-th value."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from envbuild.matrix.facts.model import Component, Constraint, Term

ABSENT = 1  # the mask of "absent"
PRESENT_KINDS = ("provides", "requires")  # kinds of facts that call for a component
NO_GPU = "+cpu"  # the end of a build without code for GPUs
NAMING_OPERATORS = ("==", "in", ">=", "<=", ">", "<")  # operators whose operand is itself a version


class Atom(NamedTuple):
    """One constraint on one component (by number): the values of which it is true (`sure`) and those that cannot
    be ordered (`maybe`). `terms`: an alternative a line, its terms ("operator operand") between tabs."""

    component: int
    text: str
    terms: str
    sure: int
    maybe: int


def evaluate_constraint(component: Component, constraint: Constraint, known: Iterable[str | None]) -> tuple[int, int]:
    """Return (values of `known` that meet the constraint, those that cannot be ordered), the first as bit 0."""
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
    """Return the constraint that an atom was made of."""
    alternatives = [[term.partition(" ") for term in line.split("\t")] for line in atom.terms.split("\n")]
    return Constraint(tuple(tuple(Term(op, operand) for op, _, operand in terms) for terms in alternatives), atom.text)


def format_terms(constraint: Constraint) -> str:
    """Return the `terms` of an atom made of `constraint`."""
    lines = [[f"{term.op} {term.operand}" for term in terms] for terms in constraint.alternatives]
    return "\n".join("\t".join(line) for line in lines)


def operands(component: Component, constraint: Constraint, operators: Collection[str]) -> Iterable[str]:
    """Yield the values that `constraint` names with these operators."""
    for terms in constraint.alternatives:
        for term in terms:
            if term.op in operators and term.operand:
                yield term.operand


def pick_penalty(value: str) -> int:
    """Return how late a version is picked, 0 for most: 1 for builds with a local label (``+cu126``), 2 for
    pre-releases and flavours (``3.13t``), 3 for versions that cannot be compared (NGC's builds). They are picked
    only when something requires them."""
    from envbuild.matrix.facts import version

    if not version.is_comparable(value):
        return 3
    if version.is_prerelease(value) or version.parse(value).flavour:
        return 2
    return int("+" in value)
