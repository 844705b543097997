"""The time that each task of a command took, for ``--timings``."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from envbuild.core.console import Reporter

LONGEST = 60  # characters of a task in the table


@dataclass(slots=True, eq=False)
class TaskTime:
    """A task: when it began and ended, in seconds since the command did."""

    text: str
    start: float
    end: float


@dataclass
class TimingReporter:
    """A reporter that passes everything on and records when tasks begin and end. Safe to use from several threads."""

    reporter: Reporter
    began: float = field(default_factory=time.monotonic)
    tasks: list[TaskTime] = field(default_factory=list)
    running: dict[str, TaskTime] = field(default_factory=dict)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.info, self.warn = self.reporter.info, self.reporter.warn
        self.advance, self.note = self.reporter.advance, self.reporter.note

    def start(self, task: str, text: str) -> None:
        now = self.passed()
        with self.guard:
            self.running[task] = TaskTime(text, now, now)
            self.tasks.append(self.running[task])
        self.reporter.start(task, text)

    def finish(self, task: str, text: str = "") -> None:
        with self.guard:
            if ended := self.running.pop(task, None):
                ended.end = self.passed()
        self.reporter.finish(task, text)

    def passed(self) -> float:
        """Return the seconds since the command began."""
        return time.monotonic() - self.began

    def rows(self) -> list[dict[str, Any]]:
        """Return the tasks in the order of their starts (`task`, `start`, `seconds`), and what no task took."""
        whole = self.passed()
        with self.guard:
            found = [TaskTime(task.text, task.start, task.end) for task in self.tasks]
            for task in self.running.values():
                found[self.tasks.index(task)].end = whole
        rest = whole - _covered(found)
        rows = [
            {"task": task.text, "start": _round(task.start), "seconds": _round(task.end - task.start)} for task in found
        ]
        return [*rows, {"task": "other", "start": 0.0, "seconds": _round(rest)}]

    def table(self) -> str:
        """Return the rows as text. Tasks run at the same time, so their sum may be more than the whole."""
        rows = self.rows()
        lines = [f"{row['seconds']:8.1f} s  at {row['start']:6.1f} s  {row['task'][:LONGEST]}" for row in rows[:-1]]
        rest, whole = rows[-1]["seconds"], self.passed()
        return "\n".join(["timings:", *lines, f"{rest:8.1f} s  in no task", f"{whole:8.1f} s  in all"])


def _covered(tasks: list[TaskTime]) -> float:
    """Return the seconds in which at least one task ran."""
    covered = end = 0.0
    for task in sorted(tasks, key=lambda task: task.start):
        covered += max(0.0, task.end - max(task.start, end))
        end = max(end, task.end)
    return covered


def _round(seconds: float) -> float:
    return round(seconds, 2)
