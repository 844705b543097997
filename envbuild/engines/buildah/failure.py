"""From buildah's words to the unit and the step that failed."""

from __future__ import annotations

import re
from pathlib import Path

from envbuild.engines.embedded.failure import last_lines, step_failed, tail
from envbuild.errors import BuildError
from envbuild.plan import bridge
from envbuild.plan.containerfile import instructions
from envbuild.plan.units import Plan

FAILED = re.compile(rb'building at STEP "(.*)": (.*)')  # buildah 1.28 and later; earlier with "error" before it
CODE = re.compile(r"exit status (\d+)")


def error(plan: Plan, code: int, log: Path, store: Path) -> BuildError:
    """The error for a build that ended with `code` and left `log`."""
    hint = f"envbuild make {plan.image} --engine embedded --shell-on-fail  (opens a shell in the failed unit)"
    found = FAILED.search(tail(log))
    if found:
        text, reason = (part.decode(errors="replace") for part in found.groups())
        status = CODE.search(reason)
        with bridge.hpccm_target(plan.config.architecture):
            same = [item for item in instructions(plan) if item.step >= 0 and normal(str(item.item)) == normal(text)]
        if same:
            unit = plan.unit(same[0].stage)
            told = step_failed(unit, plan.image, same[0].step, int(status[1]) if status else code, log, store)
            return BuildError(told.message, hint=hint, where=told.where)
    lines = [f"buildah failed with exit code {code}", f"the last lines of {log}:", last_lines(log)]
    return BuildError("\n".join(lines), hint=hint, where=str(log))


def normal(text: str) -> str:
    """An instruction as buildah prints it: one line, and here one space for every run of them."""
    return " ".join(text.replace("\\\n", " ").split())
