"""Clauses over many-valued variables, and which of them can matter to a question.

A *domain* is an int: bit i is set when the variable may take its i-th value. Bit 0 is the value that a variable takes
when no clause requires another. A *clause* is ``((variable, mask), …)``: one of these variables has a value within its
mask; each variable occurs at most once in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Clause = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ClauseIndex:
    """The first `count` clauses of a problem by a variable that has to lose bit 0 before they can matter; `open`: those
    that have none. It avoids a visit of all of them for each question."""

    count: int
    open: Sequence[int]
    waiting: Mapping[int, Sequence[int]]

    @classmethod
    def of(cls, clauses: Sequence[Clause]) -> ClauseIndex:
        """Return the index of all `clauses`."""
        waiting: dict[int, list[int]] = {}
        for number, clause in enumerate(clauses):
            waiting.setdefault(next((var for var, mask in clause if mask & 1), -1), []).append(number)
        return cls(len(clauses), waiting.pop(-1, []), waiting)

    def first_batches(self, possible: Sequence[bool], clauses: Sequence[Clause]) -> list[Sequence[int]]:
        """Return the clauses to visit first: those without an index, then those of it that can matter already.
        `possible`: whether bit 0 of a variable may be removed."""
        ready = [self.waiting.get(var, ()) for var, moves in enumerate(possible) if moves]
        return [range(self.count, len(clauses)), self.open, *ready]


EMPTY_INDEX = ClauseIndex(0, (), {})


def relevant_clauses(domains: Sequence[int], clauses: Sequence[Clause], index: ClauseIndex = EMPTY_INDEX) -> list[int]:
    """Return the numbers of the clauses that can matter: what is left out holds in some assignment that meets the
    others. `index`: of the first clauses."""
    possible = [not domain & 1 for domain in domains]
    waiting: dict[int, list[int]] = {}
    found: list[int] = []
    todo = index.first_batches(possible, clauses)
    for batch in todo:
        for number in batch:
            clause = clauses[number]
            for var, mask in clause:
                if mask & 1 and not possible[var]:
                    waiting.setdefault(var, []).append(number)
                    break
                if not domains[var] & ~mask:
                    break
            else:
                found.append(number)
                for var, mask in clause:
                    if not possible[var] and domains[var] & mask:
                        possible[var] = True
                        todo += waiting.pop(var, ()), index.waiting.get(var, ())
    return sorted(found)
