"""Domains, the clauses that narrow them, and the trail of what was removed when and why.

Each clause is visited through two watched literals: those that would be the last to become false."""

from __future__ import annotations

import sys
from collections.abc import Sequence

DECISION = -1  # in the trail, where a reason is not a clause


class Watch:
    """A literal by its mask, and the clauses that are visited when it becomes false."""

    __slots__ = ("clauses", "mask")

    def __init__(self, mask: int, clauses: list[int]) -> None:
        self.mask, self.clauses = mask, clauses


class Propagation:
    """The state of a search: a domain per variable, and what follows from the decisions so far."""

    def __init__(self, domains: Sequence[int]) -> None:
        self.domains = list(domains)
        self.steps = 0  # clauses and changes visited
        self.clauses: list[list[tuple[int, int]]] = []  # the two watched literals come first
        self.origins: list[int] = []  # bit mask of the given clauses that each follows from
        self.trail: list[tuple[int, int, int]] = []  # (variable, its domain before, reason)
        self.levels: list[int] = []  # length of the trail when each decision was made
        self.given_count = sys.maxsize  # clauses from this number on are learned
        # A watched literal is visited again when a certain one of its values is removed: variable → that bit → watches.
        self._watching: list[dict[int, list[Watch]]] = [{} for _ in domains]
        self._watches: dict[tuple[int, int], Watch] = {}
        self._removed: list[tuple[int, int]] = []  # (variable, the values removed from it), not propagated yet

    def decide(self, var: int, domain: int) -> int | None:
        """Narrow a variable on a level of its own. Return a clause that becomes false, or None."""
        self.levels.append(len(self.trail))
        self.narrow(var, domain, DECISION)
        return self.propagate()

    def narrow(self, var: int, domain: int, reason: int) -> None:
        """Give a variable a smaller domain because of a clause, or of a decision."""
        before = self.domains[var]
        if domain != before:
            self.trail.append((var, before, reason))
            self._removed.append((var, before & ~domain))
            self.domains[var] = domain

    def undo(self, level: int) -> None:
        """Return to the state before the decision that followed on `level` levels."""
        self._removed.clear()
        if len(self.levels) > level:
            length = self.levels[level]
            for var, domain, _ in reversed(self.trail[length:]):
                self.domains[var] = domain
            del self.trail[length:], self.levels[level:]

    def add(self, clause: Sequence[tuple[int, int]], origin: int, alive: Sequence[int], last_removed: int = 0) -> int:
        """Add a clause. Return its number.

        origin: the given clauses that it follows from, as a mask.
        alive: the places of its literals that may hold, as far as they are known; the first two are watched.
        last_removed: if the second is false, those of its values that return first when decisions are undone.
        """
        number = len(self.clauses)
        ours = list(clause)
        for at, place in enumerate(alive[:2]):
            ours[at], ours[place] = ours[place], ours[at]
        if len(alive) > 1:
            self._watch(*ours[0], number)
            self._watch(*ours[1], number, last_removed)
        self.clauses.append(ours)
        self.origins.append(origin)
        return number

    def _watch(self, var: int, mask: int, number: int, last_removed: int = 0) -> None:
        """Watch a literal of a clause. Given clauses with the same literal share a watch."""
        watch = self._watches.get((var, mask)) if number < self.given_count else None
        if watch is None:
            watch = Watch(mask, [])
            bits = self.domains[var] & mask or last_removed or mask
            self._watching[var].setdefault(bits & -bits, []).append(watch)
            if number < self.given_count:
                self._watches[var, mask] = watch
        watch.clauses.append(number)

    def require_first(self, number: int) -> bool:
        """Make true the first literal of a clause whose others are false; return False when it cannot be true."""
        clause = self.clauses[number]
        if not clause or not self.domains[clause[0][0]] & clause[0][1]:
            return False
        var, mask = clause[0]
        self.narrow(var, self.domains[var] & mask, number)
        return True

    def propagate(self) -> int | None:
        """Propagate every clause that has one literal left. Return a clause that has none, or None."""
        domains, clauses, watching, removals, trail = (
            self.domains,
            self.clauses,
            self._watching,
            self._removed,
            self.trail,
        )
        steps = 0
        while removals:
            var, removed = removals.pop()
            ours, domain = watching[var], domains[var]
            for bit in [bit for bit in ours if bit & removed]:
                watches = ours.pop(bit)
                steps += len(watches) + 1
                for at, watch in enumerate(watches):
                    if left := domain & watch.mask:
                        low = left & -left
                        if low in ours:
                            ours[low].append(watch)
                        else:
                            ours[low] = [watch]
                        continue
                    watchers, watch.clauses = watch.clauses, []
                    kept = watch.clauses.append
                    steps += len(watchers)
                    for seen, number in enumerate(watchers):
                        clause = clauses[number]
                        if clause[0][0] == var:
                            clause[0], clause[1] = clause[1], clause[0]
                        other, mask = clause[0]
                        present = domains[other]
                        if not present & ~mask:  # it holds anyway
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
                            left = present & mask
                            if not left:
                                watch.clauses += watchers[seen + 1 :]
                                ours.setdefault(bit, []).extend(watches[at:])
                                removals.clear()
                                self.steps += steps
                                return number
                            trail.append((other, present, number))
                            removals.append((other, present & ~left))
                            domains[other] = left
                    ours.setdefault(bit, []).append(watch)
        self.steps += steps
        return None
