"""The time that tasks took: parallel ones, unfinished ones, and what was in no task."""

from __future__ import annotations

import pytest

from envbuild.core import timings
from envbuild.core.console import SilentReporter
from envbuild.core.timings import TimingReporter

pytestmark = pytest.mark.unit


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(timings.time, "monotonic", lambda: now[0])
    return now


def test_tasks_that_run_at_the_same_time(clock: list[float]) -> None:
    below = SilentReporter()
    times = TimingReporter(below, began=100.0)
    for second, call, task in (
        (1, "start", "a"),
        (2, "start", "b"),
        (4, "finish", "a"),
        (6, "finish", "b"),
        (8, "start", "c"),
    ):
        clock[0] = 100 + second
        getattr(times, call)(task, f"{call} {task}")
    clock[0] = 110
    assert times.rows() == [
        {"task": "start a", "start": 1.0, "seconds": 3.0},
        {"task": "start b", "start": 2.0, "seconds": 4.0},
        {"task": "start c", "start": 8.0, "seconds": 2.0},
        {"task": "other", "start": 0.0, "seconds": 3.0},
    ]
    assert below.lines == ["finish a", "finish b"]
    assert times.table().splitlines()[1:] == [
        "     3.0 s  at    1.0 s  start a",
        "     4.0 s  at    2.0 s  start b",
        "     2.0 s  at    8.0 s  start c",
        "     3.0 s  in no task",
        "    10.0 s  in all",
    ]


def test_a_task_of_the_same_name_twice(clock: list[float]) -> None:
    times = TimingReporter(SilentReporter(), began=100.0)
    for _ in range(2):
        times.start("digest", "sha256")
        clock[0] += 1
        times.finish("digest")
    times.finish("digest")
    assert [(row["task"], row["seconds"]) for row in times.rows()] == [("sha256", 1.0), ("sha256", 1.0), ("other", 0.0)]
