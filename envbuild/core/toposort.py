"""Topological order of recipes: each after those that it names, ties by name, so that an image always has the same
order."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping


def sort_topologically(after: Mapping[str, Iterable[str]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (names in order, one cycle).

    after: name → names that come before it; those that are not keys do not count.

    With a cycle, the order holds only the names that do not depend on it, and the cycle begins and ends with the same
    name (``a, b, a``: a comes after b, b after a)."""
    waits = {name: {other for other in others if other in after} for name, others in after.items()}
    ready = [name for name, others in waits.items() if not others]
    heapq.heapify(ready)
    order: list[str] = []
    while ready:
        name = heapq.heappop(ready)
        order.append(name)
        for other, others in waits.items():
            if name in others:
                others.discard(name)
                if not others:
                    heapq.heappush(ready, other)
    left = {name: others for name, others in waits.items() if name not in order}
    return tuple(order), _cycle(left)


def _cycle(waits: Mapping[str, set[str]]) -> tuple[str, ...]:
    """Return a cycle: every name depends on another one of `waits`, so a walk must return to its path."""
    if not waits:
        return ()
    path = [min(waits)]
    while True:
        following = min(waits[path[-1]])
        if following in path:
            return (*path[path.index(following) :], following)
        path.append(following)
