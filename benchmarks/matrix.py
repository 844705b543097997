"""Measure the version matrix: CPU seconds of whole commands, and of questions in one process.

    python benchmarks/matrix.py

Each command starts Python; the first row is the cost of that alone. Questions are those of
tests/matrix/cases, answered one after another in one process. Each is answered twice and the second time counts:
masks of constraints are cached.
"""

from __future__ import annotations

import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml
from measure import best, machine, measure
from run import ENVBUILD, head, row

from envbuild.core.errors import EnvbuildError
from envbuild.matrix import FACTS
from envbuild.matrix.answer.check import check
from envbuild.matrix.facts.compile import load_fact_table
from envbuild.matrix.solve.request import parse_request

CASES = Path(__file__).parents[1] / "tests" / "matrix" / "cases"
VALID = ["check", "gpu=H100", "torch=2.8.0", "driver=570.26"]


def commands() -> None:
    row("start-up alone: `envbuild --version`", best(5, lambda: measure([*ENVBUILD, "--version"])))
    row("`envbuild check gpu=H100 torch=2.8.0 driver=570.26`", best(5, lambda: measure([*ENVBUILD, *VALID])))
    row("`envbuild check --all`", best(5, lambda: measure([*ENVBUILD, "check", "--all"])))
    with tempfile.TemporaryDirectory() as cache:
        row(
            "the first check of a user: fact files read and compiled",
            measure([*ENVBUILD, *VALID], {"XDG_CACHE_HOME": cache}),
        )


def timed(once: Callable[[], object]) -> float:
    began = time.process_time()
    once()
    return time.process_time() - began


def questions() -> None:
    matrix = load_fact_table([FACTS])
    spent: dict[str, list[float]] = {}
    for path in sorted(CASES.glob("*.yaml")):
        for case in yaml.safe_load(path.read_text()):
            try:
                asks = parse_request(shlex.split(case["ask"]), matrix)
            except EnvbuildError:
                continue
            verdict = check(matrix, asks).verdict
            spent.setdefault(verdict, []).append(timed(lambda asks=asks: check(matrix, asks)))  # type: ignore[misc]
    print("\n| verdict | questions | median ms | 95 of 100 ms | worst ms |\n|---|---|---|---|---|")
    for verdict, seconds in sorted(spent.items()):
        ordered = sorted(1000 * value for value in seconds)
        middle, most = statistics.median(ordered), ordered[int(0.95 * (len(ordered) - 1))]
        print(f"| {verdict} | {len(ordered)} | {middle:.0f} | {most:.0f} | {ordered[-1]:.0f} |")


def main() -> None:
    machine()
    head()
    subprocess.run([*ENVBUILD, *VALID], stdout=subprocess.DEVNULL, check=True)  # the cache is there from here on
    commands()
    questions()


if __name__ == "__main__":
    sys.exit(main())
