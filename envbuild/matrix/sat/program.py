"""Clauses prepared for many questions: with the rows that each comes from, and with their index."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from envbuild.matrix.sat.clause_index import EMPTY_INDEX, Clause, ClauseIndex

HOLDS: Clause = ((0, -1),)  # a clause that is always true


@dataclass(frozen=True, slots=True)
class Program:
    """Clauses and their index; `owners` names the rows that each comes from: one, or all that dispute one thing."""

    clauses: list[Clause]
    owners: list[tuple[int, ...]]
    index: ClauseIndex = EMPTY_INDEX

    def without(self, rows: Collection[int]) -> Program:
        """Return the program without the clauses that come from one of these rows first. Clauses that are always true
        replace theirs, so that the index remains valid."""
        clauses = [
            HOLDS if owners[0] in rows else clause for clause, owners in zip(self.clauses, self.owners, strict=True)
        ]
        return Program(clauses, self.owners, self.index)


@dataclass(frozen=True, slots=True)
class SoftProgram:
    """Hard clauses, then those of `rows`, which may be left out: each row has a variable of its own for that."""

    rows: Sequence[int]
    clauses: list[Clause]
    index: ClauseIndex
