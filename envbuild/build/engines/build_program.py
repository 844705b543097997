"""A build by a program that has an engine of its own: the compile jobs of its steps, and its output in a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from envbuild.build.engines import resources
from envbuild.build.engines.base import BuildOptions
from envbuild.build.plan.units import Plan
from envbuild.core import signals
from envbuild.core.console import Reporter
from envbuild.core.programs import PIPE, STDOUT, start_program

LONGEST = 1 << 16  # bytes of a line that are read at once


def jobs_argument(plan: Plan, options: BuildOptions) -> list[str]:
    """Return the arguments that state the compile jobs of every step: as many as the largest of the plan may have."""
    limit = options.jobs or resources.cores()
    jobs = resources.compile_jobs(limit, 0.9 * resources.memory(), max(unit.memory_gb for unit in plan.units))
    return ["--build-arg", f"ENVBUILD_JOBS={jobs}"]


def run_build(command: Sequence[str], environment: Mapping[str, str], log: Path, task: str, reporter: Reporter) -> int:
    """Run a build and return its exit code; its output is added to `log`, its last line is the note of `task`."""
    with log.open("ab", buffering=0) as file:
        process = start_program(command, env=environment, stdout=PIPE, stderr=STDOUT, umask=0o022)
        with process, signals.at_stop(process.kill):
            assert process.stdout is not None
            for line in pieces(process.stdout):
                file.write(line)
                reporter.note(task, line.decode(errors="replace").strip())
            return process.wait()


def pieces(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of an output, a longer one than `LONGEST` in pieces: a step can print a line of gigabytes."""
    return iter(lambda: file.readline(LONGEST), b"")
