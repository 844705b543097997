"""From BuildKit's output to the unit and the step that failed."""

from __future__ import annotations

import re
from pathlib import Path

from envbuild.build.blocks import hpccm
from envbuild.build.engines.build_program import pieces
from envbuild.build.engines.docker.stages import docker_instructions
from envbuild.build.engines.error_report import read_last_lines, read_tail, step_error
from envbuild.build.engines.select import load_engine
from envbuild.build.plan.units import Plan
from envbuild.core.errors import BuildError, EnvbuildError
from envbuild.core.shell import shell_word
from envbuild.core.store.store import Store

# "#12 [unit 3/5] RUN …", and later "#12 ERROR: …: exit code: 3": the words differ from release to release
STARTED = re.compile(rb"^#(\d+) \[([^\s\]]+) +(\d+)/(\d+)\] ", re.MULTILINE)
FAILED = re.compile(rb"^#(\d+) ERROR: .*exit code: (\d+)", re.MULTILINE)
SHELL = "embedded"  # the engine that opens a shell in a failed unit


def build_error(plan: Plan, code: int, log: Path, store: Store) -> EnvbuildError:
    """Return the error for a build that ended with `code` and left `log`: a BuildError, or an EngineError for a full
    disk."""
    hint = f"the whole log: less {shell_word(log)}"
    if load_engine(SHELL).probe(store).ok:
        retry = f"envbuild make {shell_word(plan.image)}"
        hint = f"{retry} --engine {SHELL} --shell-on-fail  (opens a shell in the failed unit)"
    if found := find_failed(plan, log):
        unit, step, status = found
        reported = step_error(plan.unit(unit), plan.image, step, status, log, store.root)
        if isinstance(reported, BuildError):
            return BuildError(reported.message, hint=hint, where=reported.where)
        return reported
    lines = [f"docker build failed with exit code {code}", f"the last lines of {log}:", read_last_lines(log)]
    return BuildError("\n".join(lines), hint=hint, where=str(log))


def find_failed(plan: Plan, log: Path) -> tuple[str, int, int] | None:
    """Return unit, number of the step and exit code of the command that failed; None if the log names none."""
    failed = FAILED.search(read_tail(log))
    if not failed:
        return None
    with log.open("rb") as file:
        started = [match for line in pieces(file) if (match := STARTED.match(line)) and match[1] == failed[1]]
    if not started:
        return None
    name, number = started[-1][2].decode(errors="replace"), int(started[-1][3])
    with hpccm.hpccm_target(plan.config.architecture):
        layers = [item for item in docker_instructions(plan) if item.stage == name and item.layer]
    if not 0 < number <= len(layers) or layers[number - 1].step < 0:
        return None
    return name, layers[number - 1].step, int(failed[2])
