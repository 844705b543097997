"""The smallest part of something contradictory that is still contradictory, as far as there is time to look for it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from envbuild.matrix.sat.solver import UndecidedError

T = TypeVar("T")
SMALL = 2  # members of a part that is not worth another order: hardly anything contradicts itself

# Return those of the given members that a proof needed; None when they do not contradict each other. May raise
# UndecidedError.
FindCore = Callable[[Sequence[T]], Collection[T] | None]


class Deadline:
    """A limit of processor time."""

    def __init__(self, seconds: float) -> None:
        self._end = time.process_time() + seconds  # not wall time: the load of the machine changes no answer

    def has_passed(self) -> bool:
        return time.process_time() > self._end


def find_minimal_core(
    find_core: FindCore[T], members: Sequence[T], deadline: Deadline, orders: int
) -> tuple[frozenset[T], bool] | None:
    """Return (the smallest contradictory part of `members` that was found, whether it is proved that every member of it
    is needed); None when they do not contradict each other. Raise UndecidedError when that cannot be decided.

    One member after the other is left out, in several orders, the same ones each time: a single order may end in a far
    larger part than another."""
    best: tuple[frozenset[T], bool] | None = None
    possible: list[frozenset[T]] = []  # parts that do not contradict
    for seed in range(orders):
        shuffled = list(members)
        if seed:
            random.Random(seed).shuffle(shuffled)
        try:
            used = find_core(shuffled)
        except UndecidedError:
            if best is None:
                raise
            break
        if used is None:
            return None
        found, proved = _delete_members(
            find_core, [member for member in shuffled if member in used], deadline, possible
        )
        if best is None or (not proved, len(found)) < (not best[1], len(best[0])):
            best = frozenset(found), proved
        if len(best[0]) <= SMALL or len(best[0]) == len(members) or deadline.has_passed():
            break
    return best


def _delete_members(
    find_core: FindCore[T], members: list[T], deadline: Deadline, possible: list[frozenset[T]]
) -> tuple[list[T], bool]:
    """Return what is left after every member that can be left out, tried in this order; a member that one proof does
    not need is left out too. Parts of one of `possible` do not contradict; what is found not to is added to them."""
    proved = True
    for member in list(members):
        if member not in members:
            continue
        rest = [other for other in members if other != member]
        part = frozenset(rest)
        if any(part <= other for other in possible):
            continue
        try:
            used = find_core(rest) if not deadline.has_passed() else None
            proved = proved and not deadline.has_passed()
        except UndecidedError:
            used, proved = None, False
        else:
            if used is None and proved:
                possible.append(part)
        if used is not None:
            members = [other for other in rest if other in used]
    return members, proved
