"""From buildah's output to the unit and the step that failed."""

from __future__ import annotations

import re
from pathlib import Path

from envbuild.build.blocks import hpccm
from envbuild.build.engines.build_program import pieces
from envbuild.build.engines.error_report import read_last_lines, read_tail, step_error
from envbuild.build.engines.select import load_engine
from envbuild.build.plan.containerfile import Instruction, instructions
from envbuild.build.plan.units import Plan
from envbuild.core.errors import BuildError, EnvbuildError
from envbuild.core.shell import shell_word
from envbuild.core.store.store import Store

FAILED = re.compile(rb'building at STEP "(.*)": (.*)')  # buildah 1.28 and later; earlier with "error" before it
STARTED = re.compile(rb"(?:\[(\d+)/\d+\] )?STEP (\d+)/\d+: (.*)")  # [stage/of] STEP instruction/of: text
SHELL = "embedded"  # the engine that opens a shell in a failed unit
CODE = re.compile(r"exit status (\d+)")


def build_error(plan: Plan, code: int, log: Path, store: Store) -> EnvbuildError:
    """Return the error for a build that ended with `code` and left `log`: a BuildError, or an EngineError for a full
    disk."""
    hint = f"the whole log: less {shell_word(log)}"
    if load_engine(SHELL).probe(store).ok:
        retry = f"envbuild make {shell_word(plan.image)}"
        hint = f"{retry} --engine {SHELL} --shell-on-fail  (opens a shell in the failed unit)"
    found = FAILED.search(read_tail(log))
    if found:
        text, reason = (part.decode(errors="replace") for part in found.groups())
        status = CODE.search(reason)
        instruction = find_started(plan, normalize(text), log)
        if instruction and instruction.step >= 0:
            unit = plan.unit(instruction.stage)
            reported = step_error(
                unit, plan.image, instruction.step, int(status[1]) if status else code, log, store.root
            )
            return (
                BuildError(reported.message, hint=hint, where=reported.where)
                if isinstance(reported, BuildError)
                else reported
            )
    lines = [f"buildah failed with exit code {code}", f"the last lines of {log}:", read_last_lines(log)]
    return BuildError("\n".join(lines), hint=hint, where=str(log))


def find_started(plan: Plan, text: str, log: Path) -> Instruction | None:
    """Return the instruction with this text that was started last: texts may be equal."""
    found = None
    with log.open("rb") as file:
        for line in pieces(file):
            match = STARTED.match(line)
            if match and normalize(match[3].decode(errors="replace")) == text:
                found = int(match[1] or 1), int(match[2])
    if found is None:
        return None
    name = plan.units[found[0] - 1].name
    with hpccm.hpccm_target(plan.config.architecture):
        stage = [item for item in instructions(plan) if item.stage == name and not str(item.item).startswith("#")]
        return stage[found[1] - 1]


def normalize(text: str) -> str:
    """Return an instruction as buildah prints it: one line, and here one space for every run of them."""
    return " ".join(text.replace("\\\n", " ").split())
