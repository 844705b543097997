"""Search for the first assignment of many-valued variables that meets every clause, or for the clauses that contradict
each other. It is independent of components and facts.

A *domain* is an int: bit i is set when the variable may take its i-th value. Bit 0 is the value that a variable takes
when no clause requires another. A *clause* is ``((variable, mask), …)``: one of these variables has a value within its
mask; each variable occurs at most once in it.

The search assigns variables in a given order, lowest bit first, and propagates over two watched literals a clause, so
the first assignment that it finds is the lexicographically first. A dead end is explained by the decisions that led
to it (conflict-driven learning), which loses no assignment and spares most of the tree."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Clause = tuple[tuple[int, int], ...]
STEP_LIMIT = 2_000_000  # clauses and changes visited: about a second

_DECISION = -1  # in the trail, where a reason is not a clause


class UndecidedError(Exception):
    """An exhausted step limit: nothing is known about the question."""


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


EMPTY_INDEX = ClauseIndex(0, (), {})


class Watch:
    """A literal by its mask, and the clauses that are visited when it becomes false."""

    __slots__ = ("clauses", "mask")

    def __init__(self, mask: int, clauses: list[int]) -> None:
        self.mask, self.clauses = mask, clauses


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
        self._domains = list(domains)
        self._steps = 0
        self.effort = 0  # steps of all questions so far
        self._used = 0  # bit i: clause i takes part in the contradiction
        self._clauses: list[list[tuple[int, int]]] = []  # the two watched literals come first
        self._origins: list[int] = []  # bit mask of the given clauses that each follows from
        # A watched literal is visited again when a certain one of its values is removed: variable → that bit → watches.
        self._watching: list[dict[int, list[Watch]]] = [{} for _ in domains]
        self._watches: dict[tuple[int, int], Watch] = {}
        self._given_count = sys.maxsize
        self._trail: list[tuple[int, int, int]] = []  # (variable, its domain before, reason)
        self._levels: list[int] = []  # length of the trail when each decision was made
        self._assumed: Sequence[tuple[int, int]] = ()  # what the first levels are about
        self._taught = False  # whether there are learned clauses
        self._twin: Search | None = None  # the same without learned clauses
        self._removed: list[tuple[int, int]] = []  # (variable, the values removed from it), not propagated yet
        self._possible = [not domain & 1 for domain in domains]  # whether bit 0 of a variable may be removed
        for var in self.free:
            self._possible[var] = True
        self._broken = not all(domains) or not self._take_relevant()
        for var, possible in enumerate(self._possible):
            if not possible:
                self._domains[var] &= 1
        self._given_count = len(self._clauses)
        self._undecided = {var for var, domain in enumerate(self._domains) if _open(domain)}
        self._order = sorted(self._undecided)

    def arrange(self, order: Sequence[int]) -> None:
        """Assign variables in `order`, then the others by number."""
        undecided = self._undecided
        self._order = [var for var in order if var in undecided] + sorted(undecided.difference(order))

    def decision_variables(self) -> list[int]:
        """Return, after `first` found an assignment, the variables for which there was a choice, in the order of
        choosing."""
        return [var for var, _, reason in self._trail if reason == _DECISION]

    def implied_domains(self, assumptions: Sequence[tuple[int, int]] = ()) -> list[int]:
        """Return the domain of each variable that follows from the clauses and `assumptions` without a choice, up to
        the first contradiction. What other questions taught does not count: an answer depends on its question alone."""
        if self._taught:
            if self._twin is None:
                self._twin = Search(self._full, self._given, self.free, self._index)
            return self._twin.implied_domains(assumptions)
        for var, mask in assumptions[self._resume(assumptions) :] if not self._broken else ():
            if not self._domains[var] & mask:
                break
            self._levels.append(len(self._trail))
            self._set(var, self._domains[var] & mask, _DECISION)
            if self._propagate() is not None:
                implied = list(self._domains)
                self._undo(len(self._levels) - 1)
                return implied
        return list(self._domains)

    def _resume(self, assumptions: Sequence[tuple[int, int]]) -> int:
        """Return to where the search differs from the last one; return how many assumptions are made already."""
        same = 0
        for one, other in zip(assumptions, self._assumed[: len(self._levels)], strict=False):
            if one != other:
                break
            same += 1
        self._undo(same)
        self._assumed = assumptions
        return same

    def _take_relevant(self) -> bool:
        """Add the clauses that matter, and what follows from them at once; return False when they contradict each
        other.

        A clause that holds as long as a variable has bit 0 has no effect, until some other clause may change that
        variable: leaving it out changes neither whether there is an assignment nor which one is the first."""
        domains, possible, clauses = self._domains, self._possible, self._given
        waiting: dict[int, list[int]] = {}
        todo = _start(possible, clauses, self._index)
        for batch in todo:
            for index in batch:
                clause = clauses[index]
                alive = []
                for place, (var, mask) in enumerate(clause):
                    domain = domains[var]
                    if mask & 1 and not possible[var]:
                        waiting.setdefault(var, []).append(index)
                        break
                    if (left := domain & mask) == domain:
                        break
                    if left:
                        alive.append(place)
                else:
                    number = self._add(clause, 1 << index, alive)
                    for place in alive:
                        var = clause[place][0]
                        if not possible[var]:
                            possible[var] = True
                            todo += waiting.pop(var, ()), self._index.waiting.get(var, ())
                    if len(alive) < 2:
                        conflict = self._propagate() if self._assert(number) else number
                        if conflict is not None:
                            self._learn(conflict)
                            return False
        return True

    def first(self, assumptions: Sequence[tuple[int, int]] = (), limit: int = STEP_LIMIT) -> list[int] | None:
        """Return the first assignment in which every variable of `assumptions` has a value within its mask. Raise
        UndecidedError after `limit` steps."""
        self._steps = 0
        try:
            return None if self._broken else self._first(assumptions, limit)
        finally:
            self.effort += self._steps

    def _first(self, assumptions: Sequence[tuple[int, int]], limit: int) -> list[int] | None:
        domains, order = self._domains, self._order
        place = 0
        places = [0] * self._resume(assumptions)  # where in the order each decision was made
        while True:
            if self._steps > limit:
                raise UndecidedError(f"no answer after {limit} steps")
            level = len(self._levels)
            if level < len(assumptions):
                var, mask = assumptions[level]
                if not self._domains[var] & mask:
                    return None
                mask &= self._domains[var]
            else:
                while place < len(order) and not (left := domains[order[place]]) & left - 1:
                    place += 1
                if place == len(order):
                    return list(domains)
                var = order[place]
                mask = domains[var] & -domains[var]
            places.append(place)
            self._levels.append(len(self._trail))
            self._set(var, mask, _DECISION)
            conflict = self._propagate()
            while conflict is not None:
                learned = self._learn(conflict)
                if learned is None:
                    return None
                place = places[len(self._levels)]
                del places[len(self._levels) :]
                conflict = None if self._assert(learned) else learned
                if conflict is None:
                    conflict = self._propagate()

    def used_clauses(self) -> frozenset[int]:
        """Return, after `first` without assumptions found nothing, the clauses that contradict each other."""
        return frozenset(_bits(self._used))

    # --- domains and their trail

    def _set(self, var: int, domain: int, reason: int) -> None:
        if domain != self._domains[var]:
            self._trail.append((var, self._domains[var], reason))
            self._removed.append((var, self._domains[var] & ~domain))
            self._domains[var] = domain

    def _undo(self, level: int) -> None:
        """Return to the state before the decision that followed on `level` levels."""
        self._removed.clear()
        if len(self._levels) > level:
            length = self._levels[level]
            for var, domain, _ in reversed(self._trail[length:]):
                self._domains[var] = domain
            del self._trail[length:], self._levels[level:]

    # --- clauses

    def _add(self, clause: Sequence[tuple[int, int]], origin: int, alive: Sequence[int]) -> int:
        """Add a clause; `alive`: the places of the literals that may hold, as far as they are known."""
        number = len(self._clauses)
        ours = list(clause)
        for at, place in enumerate(alive[:2]):
            ours[at], ours[place] = ours[place], ours[at]
        if len(alive) > 1:
            for var, mask in ours[:2]:
                self._watch(var, mask, number)
        self._clauses.append(ours)
        self._origins.append(origin)
        return number

    def _watch(self, var: int, mask: int, number: int) -> None:
        """Watch a literal of a clause. Given clauses with the same literal share a watch."""
        watch = self._watches.get((var, mask)) if number < self._given_count else None
        if watch is None:
            watch = Watch(mask, [])
            bits = (
                self._domains[var] & mask or mask
            )  # where a learned literal is false, its values return with the decision
            self._watching[var].setdefault(bits & -bits, []).append(watch)
            if number < self._given_count:
                self._watches[var, mask] = watch
        watch.clauses.append(number)

    def _assert(self, number: int) -> bool:
        """Make true the first literal of a clause whose others are false; return False when it cannot be true."""
        clause = self._clauses[number]
        if not clause or not self._domains[clause[0][0]] & clause[0][1]:
            return False
        var, mask = clause[0]
        self._set(var, self._domains[var] & mask, number)
        return True

    def _propagate(self) -> int | None:
        """Propagate every clause that has one literal left. Return a clause that has none, or None."""
        domains, clauses, watching = self._domains, self._clauses, self._watching
        while self._removed:
            var, removed = self._removed.pop()
            ours, domain = watching[var], domains[var]
            for bit in [bit for bit in ours if bit & removed]:
                watches = ours.pop(bit)
                self._steps += len(watches) + 1
                for at, watch in enumerate(watches):
                    if left := domain & watch.mask:
                        ours.setdefault(left & -left, []).append(watch)
                        continue
                    watchers, watch.clauses = watch.clauses, []
                    kept = watch.clauses.append
                    self._steps += len(watchers)
                    for seen, number in enumerate(watchers):
                        clause = clauses[number]
                        if clause[0][0] == var:
                            clause[0], clause[1] = clause[1], clause[0]
                        other, mask = clause[0]
                        if not domains[other] & ~mask:  # it holds anyway
                            kept(number)
                            continue
                        for place in range(2, len(clause)):
                            next_var, next_mask = clause[place]
                            if domains[next_var] & next_mask:
                                clause[1], clause[place] = clause[place], clause[1]
                                self._watch(next_var, next_mask, number)
                                break
                        else:
                            kept(number)
                            left = domains[other] & mask
                            if not left:
                                watch.clauses += watchers[seen + 1 :]
                                ours.setdefault(bit, []).extend(watches[at:])
                                self._removed.clear()
                                return number
                            self._set(other, left, number)
                    ours.setdefault(bit, []).append(watch)
        return None

    def _learn(self, conflict: int) -> int | None:
        """Return the clause of the decisions that led to a contradiction, added after its deepest decision was undone;
        None when no decision did: then there is no assignment.

        On the way back through the trail, `needed` holds the values whose removal explains the contradiction."""
        needed: dict[int, int] = {}
        origin = self._origins[conflict]
        for var, mask in self._clauses[conflict]:
            needed[var] = needed.get(var, 0) | mask
        learned: list[tuple[int, int]] = []
        levels: list[int] = []
        level = len(self._levels)
        domains: dict[int, int] = {}
        for at in range(len(self._trail) - 1, -1, -1):
            var, before, reason = self._trail[at]
            while level and self._levels[level - 1] > at:
                level -= 1
            after, domains[var] = domains.get(var, self._domains[var]), before
            removed = before & ~after & needed.get(var, 0)
            if not removed:
                continue
            needed[var] &= ~removed
            if reason == _DECISION:
                learned.append((var, removed))
                levels.append(level - 1)
                continue
            origin |= self._origins[reason]
            for other, mask in self._clauses[reason]:
                if other != var:
                    needed[other] = needed.get(other, 0) | mask
        self._steps += len(self._trail)
        if not learned:
            self._broken, self._used = True, origin
            return None
        merged: dict[int, int] = {}
        for var, mask in learned:  # deepest first; a variable that was decided twice (an assumption) occurs once
            merged[var] = merged.get(var, 0) | mask
        self._undo(levels[1] + 1 if len(levels) > 1 else 0)
        self._taught = True
        return self._add(list(merged.items()), origin, range(len(merged)))


def relevant_clauses(domains: Sequence[int], clauses: Sequence[Clause], index: ClauseIndex = EMPTY_INDEX) -> list[int]:
    """Return the numbers of the clauses that can matter: what is left out holds in some assignment that meets the
    others. `index`: of the first clauses."""
    possible = [not domain & 1 for domain in domains]
    waiting: dict[int, list[int]] = {}
    found: list[int] = []
    todo = _start(possible, clauses, index)
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


def _start(possible: Sequence[bool], clauses: Sequence[Clause], index: ClauseIndex) -> list[Sequence[int]]:
    """Return the clauses to visit first: those without an index, then those of it that can matter already."""
    ready = [index.waiting.get(var, ()) for var, moves in enumerate(possible) if moves]
    return [range(index.count, len(clauses)), index.open, *ready]


def _open(domain: int) -> bool:
    return bool(domain & (domain - 1))


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
