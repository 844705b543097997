"""A fact table with values that no fact names, as a request may name them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from envbuild.matrix.facts.atoms import constraint_of, evaluate_constraint
from envbuild.matrix.facts.clauses import update_precedence
from envbuild.matrix.facts.evaluate import find_guards
from envbuild.matrix.facts.evidence import evident_pairs
from envbuild.matrix.facts.fact_table import Caches, FactTable
from envbuild.matrix.facts.reachability import find_calls


def extend_table(matrix: FactTable, added: Mapping[str, Collection[str]]) -> FactTable:
    """Return the table with values that were not known (canonical ones); they are picked last."""
    new = {
        matrix.number[name]: [value for value in dict.fromkeys(given) if value not in matrix.bits[matrix.number[name]]]
        for name, given in added.items()
    }
    new = {number: given for number, given in new.items() if given}
    if not new:
        return matrix
    marks = {number: ((1 << len(given)) - 1) << len(matrix.values[number]) + 1 for number, given in new.items()}
    marks = {number: marks.get(number, 0) | matrix.added.get(number, 0) for number in {*marks, *matrix.added}}
    known = tuple((*values, *new.get(at, ())) for at, values in enumerate(matrix.values))
    atoms = []
    for atom in matrix.atoms:
        if given := new.get(atom.component):
            sure, maybe = evaluate_constraint(matrix.components[atom.component], constraint_of(atom), given)
            shift = len(matrix.values[atom.component]) + 1
            atom = atom._replace(sure=atom.sure | sure << shift, maybe=atom.maybe | maybe << shift)
        atoms.append(atom)
    kept = Caches(calls=find_calls(matrix), guards=find_guards(matrix))  # absence is as before, any condition a guard
    table = update_precedence(replace(matrix, values=known, atoms=tuple(atoms), added=marks, caches=kept), new)
    table.caches.related = evident_pairs(matrix)  # which components they are does not depend on values
    for row, values in matrix.caches.evidence.items():
        if new.keys().isdisjoint(values):
            table.caches.evidence[row] = values
    return table
