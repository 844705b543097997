"""The smallest part of something contradictory that is still contradictory, as far as there is time to look for it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from envbuild.matrix.sat.solver import UndecidedError

T = TypeVar("T")

# Those of the given members that a proof needed; None when they do not contradict each other. May raise UndecidedError.
FindCore = Callable[[Sequence[T]], Collection[T] | None]


class Deadline:
    """How long something may take."""

    def __init__(self, seconds: float) -> None:
        self._end = time.process_time() + seconds  # not the clock on the wall: a busy machine gives the same answer

    def over(self) -> bool:
        return time.process_time() > self._end


def find_minimal_core(
    contradict: FindCore[T], members: Sequence[T], clock: Deadline, orders: int
) -> tuple[frozenset[T], bool] | None:
    """(the smallest contradictory part of `members` that was found, whether it was proved that nothing of it can go);
    None when they do not contradict each other. Raises UndecidedError when that cannot be told.

    One member after the other is left out, in several orders, the same ones each time: a single order may end in a far
    larger part than another."""
    best: tuple[frozenset[T], bool] | None = None
    for seed in range(orders):
        shuffled = list(members)
        if seed:
            random.Random(seed).shuffle(shuffled)
        try:
            used = contradict(shuffled)
        except UndecidedError:
            if best is None:
                raise
            break
        if used is None:
            return None
        found, proved = _deleted(contradict, [member for member in shuffled if member in used], clock)
        if best is None or (not proved, len(found)) < (not best[1], len(best[0])):
            best = frozenset(found), proved
        if len(best[0]) < 2 or clock.over():
            break
    return best


def _deleted(contradict: FindCore[T], members: list[T], clock: Deadline) -> tuple[list[T], bool]:
    """What is left when all is left out that can be, tried in this order; what one proof does not need goes with it."""
    proved = True
    for member in list(members):
        if member not in members:
            continue
        rest = [other for other in members if other != member]
        try:
            used = contradict(rest) if not clock.over() else None
            proved = proved and not clock.over()
        except UndecidedError:
            used, proved = None, False
        if used is not None:
            members = [other for other in rest if other in used]
    return members, proved
