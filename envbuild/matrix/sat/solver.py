"""Search for the first assignment of many-valued variables that meets every clause, or for the clauses that contradict
each other. It is independent of components and facts.

The search assigns variables in a given order, lowest bit first, and propagates over two watched literals a clause, so
the first assignment that it finds is the lexicographically first. A dead end is explained by a clause of what led to it
(conflict-driven learning), which loses no assignment and spares most of the tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from envbuild.matrix.sat.clause_index import EMPTY_INDEX, Clause, ClauseIndex
from envbuild.matrix.sat.learning import explain
from envbuild.matrix.sat.propagation import DECISION, Propagation

STEP_LIMIT = 2_000_000  # clauses and changes visited: about a second


class UndecidedError(Exception):
    """An exhausted step limit: nothing is known about the question."""


class Search:
    """Clauses prepared for many questions that differ in a few assumptions; clauses learned for one help the next."""

    def __init__(
        self,
        domains: Sequence[int],
        clauses: Sequence[Clause],
        free: Iterable[int] = (),
        index: ClauseIndex = EMPTY_INDEX,
    ) -> None:
        """Prepare a search. `free`: variables that assumptions will name. `index`: of the first clauses."""
        self.free = frozenset(free)
        self._index = index
        self._given = clauses
        self._full = domains
        self._state = Propagation(domains)
        self.effort = 0  # steps of all questions so far
        self._used = 0  # bit i: clause i takes part in the contradiction
        self._assumed: Sequence[tuple[int, int]] = ()  # what the first levels are about
        self._taught = False  # whether there are learned clauses
        self._twin: Search | None = None  # the same without learned clauses
        self._possible = [not domain & 1 for domain in domains]  # whether bit 0 of a variable may be removed
        for var in self.free:
            self._possible[var] = True
        self._broken = not all(domains) or not self._take_relevant()
        state = self._state
        for var, possible in enumerate(self._possible):
            if not possible:
                state.domains[var] &= 1
        state.given_count = len(state.clauses)
        self._undecided = {var for var, domain in enumerate(state.domains) if domain & domain - 1}
        self._order = sorted(self._undecided)

    def arrange(self, order: Sequence[int]) -> None:
        """Assign variables in `order`, then the others by number."""
        undecided = self._undecided
        self._order = [var for var in order if var in undecided] + sorted(undecided.difference(order))

    def decision_variables(self) -> list[int]:
        """Return, after `first` found an assignment, the variables for which there was a choice, in the order of
        choosing."""
        return [var for var, _, reason in self._state.trail if reason == DECISION]

    def implied_domains(self, assumptions: Sequence[tuple[int, int]] = ()) -> list[int]:
        """Return the domain of each variable that follows from the clauses and `assumptions` without a choice, up to
        the first contradiction. What other questions taught does not count: an answer depends on its question alone."""
        if self._taught:
            if self._twin is None:
                self._twin = Search(self._full, self._given, self.free, self._index)
            return self._twin.implied_domains(assumptions)
        state = self._state
        for var, mask in assumptions[self._resume(assumptions) :] if not self._broken else ():
            if not state.domains[var] & mask:
                break
            if state.decide(var, state.domains[var] & mask) is not None:
                implied = list(state.domains)
                state.undo(len(state.levels) - 1)
                return implied
        return list(state.domains)

    def _resume(self, assumptions: Sequence[tuple[int, int]]) -> int:
        """Return to where the search differs from the last one; return how many assumptions are made already."""
        same = 0
        for one, other in zip(assumptions, self._assumed[: len(self._state.levels)], strict=False):
            if one != other:
                break
            same += 1
        self._state.undo(same)
        self._assumed = assumptions
        return same

    def _take_relevant(self) -> bool:
        """Add the clauses that matter, and what follows from them at once; return False when they contradict each
        other.

        A clause that holds as long as a variable has bit 0 has no effect, until some other clause may change that
        variable: leaving it out changes neither whether there is an assignment nor which one is the first."""
        state, possible, clauses = self._state, self._possible, self._given
        waiting: dict[int, list[int]] = {}
        todo = self._index.first_batches(possible, clauses)
        for batch in todo:
            for index in batch:
                clause = clauses[index]
                alive = []
                for place, (var, mask) in enumerate(clause):
                    domain = state.domains[var]
                    if mask & 1 and not possible[var]:
                        waiting.setdefault(var, []).append(index)
                        break
                    if (left := domain & mask) == domain:
                        break
                    if left:
                        alive.append(place)
                else:
                    number = state.add(clause, 1 << index, alive)
                    for place in alive:
                        var = clause[place][0]
                        if not possible[var]:
                            possible[var] = True
                            todo += waiting.pop(var, ()), self._index.waiting.get(var, ())
                    if len(alive) < 2:
                        conflict = state.propagate() if state.require_first(number) else number
                        if conflict is not None:
                            self._learn(conflict)
                            return False
        return True

    def first(self, assumptions: Sequence[tuple[int, int]] = (), limit: int = STEP_LIMIT) -> list[int] | None:
        """Return the first assignment in which every variable of `assumptions` has a value within its mask. Raise
        UndecidedError after `limit` steps."""
        self._state.steps = 0
        try:
            return None if self._broken else self._first(assumptions, limit)
        finally:
            self.effort += self._state.steps

    def _first(self, assumptions: Sequence[tuple[int, int]], limit: int) -> list[int] | None:
        state, order = self._state, self._order
        domains, levels = state.domains, state.levels
        place = 0
        places = [0] * self._resume(assumptions)  # where in the order each decision was made
        while True:
            if state.steps > limit:
                raise UndecidedError(f"no answer after {limit} steps")
            if len(levels) < len(assumptions):
                var, mask = assumptions[len(levels)]
                mask &= domains[var]
                if not mask:
                    return None
            else:
                while place < len(order) and not (left := domains[order[place]]) & left - 1:
                    place += 1
                if place == len(order):
                    return list(domains)
                var = order[place]
                mask = domains[var] & -domains[var]
            places.append(place)
            conflict = state.decide(var, mask)
            while conflict is not None:
                learned = self._learn(conflict)
                if learned is None:
                    return None
                place = places[len(levels)]
                del places[len(levels) :]
                conflict = state.propagate() if state.require_first(learned) else learned

    def _learn(self, conflict: int) -> int | None:
        """Return the clause that explains a contradiction, added after the decisions that it excludes were undone; None
        when no decision led to it: then there is no assignment."""
        state = self._state
        why = explain(state, conflict)
        if not why.literals:
            self._broken, self._used = True, why.origin
            return None
        state.undo(why.level)
        self._taught = True
        return state.add(why.literals, why.origin, range(len(why.literals)), why.last_removed)

    def used_clauses(self) -> frozenset[int]:
        """Return, after `first` without assumptions found nothing, the clauses that contradict each other."""
        return frozenset(_bits(self._used))


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
