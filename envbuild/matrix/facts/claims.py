"""The claims of rows, as masks."""

from __future__ import annotations

from envbuild.matrix.facts.atoms import ABSENT, PRESENT_KINDS, Atom
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.precedence import Claim


def row_claim(matrix: FactTable, row: int) -> Claim:
    """Return the claim of a row."""
    claims = matrix.caches.claims
    if row not in claims:
        line = matrix.rows[row]
        fact = matrix.facts[line.fact]
        when = {matrix.atoms[number].component: matrix.atoms[number].sure for number in line.when}
        atoms = (matrix.atoms[number] for number in line.then)
        claims[row] = Claim(row, fact, when, {atom.component: allowed_mask(matrix, fact.kind, atom) for atom in atoms})
    return claims[row]


def allowed_mask(matrix: FactTable, kind: str, atom: Atom) -> int:
    """Return what a fact of that kind lets a component be. A value that cannot be ordered is allowed. Where no
    known value is as a fact requires, the component may still be absent: the facts know too little to refuse it."""
    if kind == "forbids":
        return matrix.full[atom.component] & ~atom.sure | ABSENT
    allowed = atom.sure | atom.maybe
    if kind in PRESENT_KINDS and allowed & ~ABSENT:
        return allowed & ~ABSENT
    return allowed | ABSENT


def condition_components(matrix: FactTable, row: int) -> set[int]:
    """Return the numbers of the components under which a row holds."""
    return {matrix.atoms[number].component for number in matrix.rows[row].when}


def row_components(matrix: FactTable, row: int) -> set[int]:
    """Return the numbers of all components that a row names."""
    claim = row_claim(matrix, row)
    return {*claim.when, *claim.allowed}
