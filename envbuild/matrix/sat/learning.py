"""The clause that explains a contradiction: what the deepest decision led to, and the decisions before it, exclude each
other.

The contradiction is followed back through the trail, from each removed value to the clause that removed it, until one
variable of the deepest level is left (the first unique implication point). That clause is shorter, and excludes more,
than one of the decisions themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from envbuild.matrix.sat.propagation import DECISION, Propagation


@dataclass(slots=True)
class Explanation:
    """A clause that follows from the given ones: `literals`, the one of the deepest level first, then those of lower
    levels, the deepest first. It is false until the decisions above `level` are undone, then its first literal has to
    hold. `last_removed`: the values of the second literal that were removed last. `origin`: the given clauses that it
    follows from. Without literals there is no assignment."""

    origin: int
    literals: list[tuple[int, int]] = field(default_factory=list)
    level: int = 0
    last_removed: int = 0


def explain(state: Propagation, conflict: int) -> Explanation:
    """Return why a clause is false."""
    found = Explanation(state.origins[conflict])
    needed: dict[int, int] = {}  # the values whose removal explains the contradiction
    for var, mask in state.clauses[conflict]:
        needed[var] = needed.get(var, 0) | mask
    if state.levels:
        start = state.levels[-1]
        earlier = {var: before for var, before, _ in reversed(state.trail[start:])}  # domains before this level
        _to_unique_variable(state, needed, found, earlier)
        _take_lower_levels(state, needed, found, earlier)
    _resolve_first_level(state, needed, found)
    return found


def _to_unique_variable(
    state: Propagation, needed: dict[int, int], found: Explanation, earlier: Mapping[int, int]
) -> None:
    """Follow removals of the deepest level back until one variable of it is left; move that from `needed` to the
    literals."""
    trail, start = state.trail, state.levels[-1]
    state.steps += len(trail) - start
    open_here = {var for var, mask in needed.items() if mask & earlier.get(var, 0)}
    after_of: dict[int, int] = {}
    for at in range(len(trail) - 1, start - 1, -1):
        var, before, reason = trail[at]
        after, after_of[var] = after_of.get(var, state.domains[var]), before
        if not before & ~after & needed.get(var, 0):
            continue
        if len(open_here) == 1 or reason == DECISION:
            found.literals.append((var, needed.pop(var)))
            break
        _replace_by_reason(state, needed, found, var, reason)
        if not needed[var] & earlier[var]:
            open_here.discard(var)
        for other, mask in state.clauses[reason]:
            if other != var and mask & earlier.get(other, 0):
                open_here.add(other)


def _replace_by_reason(state: Propagation, needed: dict[int, int], found: Explanation, var: int, reason: int) -> None:
    """Need, instead of a removal of values, that the other literals of the clause that removed them are false."""
    found.origin |= state.origins[reason]
    for other, mask in state.clauses[reason]:
        needed[other] = needed[other] & mask if other == var else needed.get(other, 0) | mask


def _take_lower_levels(
    state: Propagation, needed: dict[int, int], found: Explanation, earlier: Mapping[int, int]
) -> None:
    """Move what was removed on lower levels, but the first, from `needed` to the literals."""
    trail, levels = state.trail, state.levels
    level = len(levels) - 1
    left = {var for var, mask in needed.items() if mask}
    after_of = dict(earlier)
    at = levels[-1]
    while left and at > levels[0]:
        at -= 1
        var, before, _ = trail[at]
        after, after_of[var] = after_of.get(var, state.domains[var]), before
        if var in left and (removed := before & ~after & needed[var]):
            if len(found.literals) == 1:
                while levels[level - 1] > at:
                    level -= 1
                found.level, found.last_removed = level, removed
            found.literals.append((var, needed.pop(var)))
            left.discard(var)
    state.steps += levels[-1] - at


def _resolve_first_level(state: Propagation, needed: dict[int, int], found: Explanation) -> None:
    """Add the origins of what was removed before any decision: such literals are false for good."""
    trail = state.trail[: state.levels[0]] if state.levels else state.trail
    if not any(needed.values()):
        return
    state.steps += len(trail)
    for var, before, reason in reversed(trail):
        if (mask := needed.get(var, 0) & before) and mask & ~dict(state.clauses[reason])[var]:
            _replace_by_reason(state, needed, found, var, reason)
