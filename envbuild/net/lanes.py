"""Parallel transfers with one server: as many as begin with, half of them after each answer that it is busy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Lanes:
    """A limit of transfers at a time, at least one. Safe to use from several threads."""

    limit: int
    running: int = 0
    round: int = 0  # of halvings; transfers that began before the last one do not halve again
    changed: threading.Condition = field(default_factory=threading.Condition)
    begun: threading.local = field(default_factory=threading.local)

    @contextmanager
    def lane(self) -> Iterator[None]:
        """Wait for a free lane and take it for this thread."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def rest(self) -> Iterator[None]:
        """Halve the limit, because the server is busy, and free the lane of this thread, if it has one, meanwhile.

        All transfers that were running at a halving count as one such answer.
        """
        if not getattr(self.begun, "held", False):
            yield
            return
        with self.changed:
            if self.begun.round == self.round:
                self.limit = max(1, self.limit // 2)
                self.round += 1
        self._leave()
        try:
            yield
        finally:
            self._enter()

    def _enter(self) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.running < self.limit)
            self.running += 1
            self.begun.round, self.begun.held = self.round, True

    def _leave(self) -> None:
        self.begun.held = False
        with self.changed:
            self.running -= 1
            self.changed.notify_all()
