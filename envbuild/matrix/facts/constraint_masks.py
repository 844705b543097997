"""Constraints of requests as masks: which of the known values they leave."""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.matrix.facts.atoms import NAMING_OPERATORS, evaluate_constraint, operands
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.model import Constraint


def constraint_mask(matrix: FactTable, name: str, constraint: Constraint) -> int:
    """Return the known values (or absence) of which `constraint` is true."""
    known = matrix.caches.masks
    if (name, constraint) not in known:
        number = matrix.number[name]
        known[name, constraint] = evaluate_constraint(
            matrix.components[number], constraint, (None, *matrix.values[number])
        )[0]
    return known[name, constraint]


def requested_mask(matrix: FactTable, name: str, constraint: Constraint, *, labels: bool = False) -> int:
    """Return what a request for `constraint` means: its mask; but of a bare version that is itself a release, that
    one alone, and where no label is named only builds without one, if there are any (``torch>=2.8`` is not
    ``2.8.0+cu126``). `labels`: of a range, builds with one are meant too."""
    if len(constraint.alternatives) == 1 and len(constraint.alternatives[0]) == 1:
        term = constraint.alternatives[0][0]
        if term.op == "in" and (bit := matrix.bits[matrix.number[name]].get(term.operand)):
            return bit
    mask = constraint_mask(matrix, name, constraint)
    if labels or "+" in constraint.text or constraint.text in ("*", "-"):
        return mask
    plain = mask & ~labelled_mask(matrix, matrix.number[name])
    return plain or mask


def labelled_mask(matrix: FactTable, number: int) -> int:
    """Return the mask of a component's builds with a local label."""
    if matrix.components[number].kind != "version":
        return 0
    known = matrix.caches.labelled
    if number not in known:
        known[number] = sum(2 << at for at, value in enumerate(matrix.values[number]) if "+" in value)
    return known[number]


def unknown_versions(matrix: FactTable, name: str, constraint: Constraint) -> tuple[str, ...]:
    """Return the versions that `constraint` names and allows, when no known value meets it: what a table is extended
    for."""
    component = matrix.components[matrix.number[name]]
    if component.kind == "name" or constraint_mask(matrix, name, constraint):
        return ()
    named = list(dict.fromkeys(operands(component, constraint, ("==", "in"))))
    bounds = [value for value in operands(component, constraint, (">=", "<=")) if value not in named]
    if component.complete:  # nothing is between its versions
        from envbuild.matrix.facts.values import neighbours

        bounds = [value for value in bounds if neighbours(component, value) is None]
    named += dict.fromkeys(bounds)
    allowed = evaluate_constraint(component, constraint, named)[0]
    return tuple(value for at, value in enumerate(named) if allowed >> at & 1)


def have_common_value(matrix: FactTable, name: str, constraints: Sequence[Constraint]) -> bool:
    """Return whether one value, known or named by them, meets all `constraints`."""
    component = matrix.components[matrix.number[name]]
    known: list[str | None] = [None, *matrix.values[matrix.number[name]]]
    if component.kind != "name":
        known += [value for given in constraints for value in operands(component, given, NAMING_OPERATORS)]
    common = (1 << len(known)) - 1
    for constraint in constraints:
        common &= evaluate_constraint(component, constraint, known)[0]
    return bool(common)
