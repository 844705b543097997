"""Clauses prepared for many questions: with the rows that each comes from, and with their index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envbuild.matrix.sat.clause_index import EMPTY_INDEX, Clause, ClauseIndex


@dataclass(frozen=True, slots=True)
class Program:
    """Clauses and their index; `owners` names the rows that each comes from: one, or all that dispute one thing."""

    clauses: list[Clause]
    owners: list[tuple[int, ...]]
    index: ClauseIndex = EMPTY_INDEX


@dataclass(frozen=True, slots=True)
class SoftProgram:
    """Hard clauses, then those of `rows`, which may be left out: each row has a variable of its own for that."""

    rows: Sequence[int]
    clauses: list[Clause]
    index: ClauseIndex
