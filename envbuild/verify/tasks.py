"""The tasks of a verification: as many at a time as the machine has cores and memory for, their results in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from envbuild.build.engines import resources
from envbuild.core.console import Reporter
from envbuild.core.text import human_list
from envbuild.spec.recipe import Check
from envbuild.verify.open_image import TASK, OpenImage
from envbuild.verify.results import AuditResult

MEMORY_GB = 2.0  # of one task: torch 2.15 with CUDA takes 0.5 GB, transformer_engine.pytorch 0.9 GB (peak of an import)
POLL = 1.0  # seconds between two reports of what runs
NAMED = 3


@dataclass(frozen=True, slots=True)
class Task:
    """A part of a verification. `run` may be called in a thread of its own. `recipe`: the one whose checks it runs;
    empty: none, it concerns the whole image. `tier`: one of `envbuild.verify.tiers.TIERS`. `check`: the one that it is.
    `parts`: name → seconds of the checks that it runs together; filled while it runs."""

    name: str
    run: Callable[[], list[AuditResult]]
    tier: str = "run"
    recipe: str = ""
    check: Check | None = None
    parts: Mapping[str, float] = field(default_factory=dict)


def run_tasks(
    tasks: Sequence[Task], image: OpenImage, reporter: Reporter
) -> tuple[list[AuditResult], dict[str, float]]:
    """Run the tasks; return their results in the order of the tasks, and name → seconds. Raises what a task raises, at
    once.

    The first task should be the longest: it starts first.
    """
    workers = resources.compile_jobs(resources.cores(), 0.9 * resources.memory(), MEMORY_GB)
    pool = ThreadPoolExecutor(max(1, workers), thread_name_prefix="verify")
    running: dict[int, str] = {}

    seconds: dict[str, float] = {}

    def run(number: int, task: Task) -> list[AuditResult]:
        running[number], began = task.name, time.monotonic()
        try:
            return task.run()
        finally:
            seconds[task.name] = round(time.monotonic() - began, 1)
            del running[number]

    futures: list[Future[list[AuditResult]]] = []
    try:
        futures = [pool.submit(run, number, task) for number, task in enumerate(tasks)]
        waiting = set(futures)
        while waiting:
            done, waiting = wait(waiting, POLL, FIRST_COMPLETED)
            for future in done:
                future.result()
            if names := human_list(list(running.values())[:NAMED], NAMED):
                reporter.note(TASK, f"{len(tasks) - len(waiting)} of {len(tasks)}: {names}")
    except BaseException:
        image.stop()  # else the threads would wait for their commands
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    times = {name: value for task in tasks for name, value in (task.parts or {task.name: seconds[task.name]}).items()}
    return [result for future in futures for result in future.result()], times
