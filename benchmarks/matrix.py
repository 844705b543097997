"""Measure the version matrix: CPU seconds of whole commands, and of questions in one process.

    python benchmarks/matrix.py [--random COUNT [--answers FILE]]

Each command starts Python; the first row is the cost of that alone. Questions are those of
tests/matrix/cases, answered one after another in one process. Each is answered twice and the second time counts:
masks of constraints are cached. `--random` answers random questions instead, each once, the same ones each time, and
names the slowest; `--answers` writes the answers as JSON lines, or answers the questions of that file and names those
whose answer differs: the answers before and after a change of the solver.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from measure import best, machine, measure
from random_questions import random_questions
from run import ENVBUILD, head, row

from envbuild.core.errors import EnvbuildError
from envbuild.matrix import FACTS
from envbuild.matrix.answer.check import check
from envbuild.matrix.answer.report import answer_data
from envbuild.matrix.facts.compile import load_fact_table
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.solve.request import parse_request

CASES = Path(__file__).parents[1] / "tests" / "matrix" / "cases"
SLOWEST = 10  # random questions that are named
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
    print_table(spent)


def print_table(spent: dict[str, list[float]]) -> None:
    print("\n| verdict | questions | median ms | 95 of 100 ms | worst ms |\n|---|---|---|---|---|")
    for verdict, seconds in sorted(spent.items()):
        ordered = sorted(1000 * value for value in seconds)
        middle, most = statistics.median(ordered), ordered[int(0.95 * (len(ordered) - 1))]
        print(f"| {verdict} | {len(ordered)} | {middle:.0f} | {most:.0f} | {ordered[-1]:.0f} |")


def ask(matrix: FactTable, question: str) -> dict[str, Any]:
    try:
        return answer_data(check(matrix, parse_request(shlex.split(question), matrix)))
    except EnvbuildError as error:
        return {"verdict": type(error).__name__, "text": str(error)}


def random_answers(count: int, path: Path | None) -> None:
    """Ask random questions, or those of a file of answers; print the CPU time, the slowest and what differs."""
    matrix = load_fact_table([FACTS])
    before: dict[str, Any] = {}
    if path and path.exists():
        before = dict(json.loads(line) for line in path.read_text().splitlines())
    seconds: dict[str, float] = {}
    spent: dict[str, list[float]] = {}
    written = path.open("w") if path and not before else None
    for question in before or random_questions(matrix, count):
        answers: list[dict[str, Any]] = []
        seconds[question] = timed(lambda question=question, answers=answers: answers.append(ask(matrix, question)))  # type: ignore[misc]
        spent.setdefault(answers[0]["verdict"], []).append(seconds[question])
        if written:
            print(json.dumps([question, answers[0]]), file=written, flush=True)
        elif before and json.loads(json.dumps(answers[0])) != before[question]:
            print(f"another answer: {question}", flush=True)
    print_table(spent)
    print("\nthe slowest:")
    for question in sorted(seconds, key=seconds.__getitem__)[: -SLOWEST - 1 : -1]:
        print(f"{seconds[question]:.2f} s: {question}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=int, metavar="COUNT", default=0)
    parser.add_argument("--answers", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    machine()
    if arguments.random:
        random_answers(arguments.random, arguments.answers)
        return
    head()
    subprocess.run([*ENVBUILD, *VALID], stdout=subprocess.DEVNULL, check=True)  # the cache is there from here on
    commands()
    questions()


if __name__ == "__main__":
    sys.exit(main())
