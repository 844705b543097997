"""The clauses of hard facts and of warnings, of which as many as possible are obeyed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envbuild.matrix.facts.clauses import program_of, replaceable_waivers
from envbuild.matrix.facts.fact_table import WARN, FactTable
from envbuild.matrix.facts.model import SOURCES
from envbuild.matrix.sat.clause_index import ClauseIndex
from envbuild.matrix.sat.program import SoftProgram


def soft_program_of(matrix: FactTable, waived: frozenset[str]) -> SoftProgram:
    """Return the clauses of hard facts and of warnings, less the facts `waived`; the rows of warnings by precedence.

    Each warning has a variable, after those of the components, in this order: bit 0, it is obeyed; bit 1, it is not.
    These are chosen before all components."""
    programs = matrix.caches.soft_programs
    if waived not in programs:
        programs[waived] = _soft_program(matrix, waived)
    return programs[waived]


def _soft_program(matrix: FactTable, waived: frozenset[str]) -> SoftProgram:
    hard, warnings = program_of(matrix, waived), program_of(matrix, waived, WARN)
    replaced = replaceable_waivers(matrix, waived)
    rows: Sequence[int]
    index = None
    if replaced == waived:
        rows = sorted({owners[0] for owners in warnings.owners}, key=lambda row: _precedence(matrix, row))
    else:  # the others only leave gaps in the clauses, so that rows and index do not change
        whole = soft_program_of(matrix, replaced)
        rows, index = whole.rows, whole.index
    variable = {row: len(matrix.components) + at for at, row in enumerate(rows)}
    clauses = list(hard.clauses)
    for clause, (row, *_) in zip(warnings.clauses, warnings.owners, strict=True):
        clauses.append((*clause, (variable[row], 0b10)))
    return SoftProgram(rows, clauses, index or ClauseIndex.of(clauses))


def _precedence(matrix: FactTable, row: int) -> tuple[Any, ...]:
    """Return a key that sorts rows the same in any order of the files."""
    fact = matrix.fact(row)
    return SOURCES.index(fact.source.type), fact.id, sorted(matrix.when(row).items()), sorted(matrix.then(row).items())
