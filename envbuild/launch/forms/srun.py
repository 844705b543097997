"""A step of Slurm with pyxis, which waits for its nodes."""

from __future__ import annotations

from envbuild.launch.model import Kind, Plan, Written
from envbuild.launch.steps import ranks_command, step_lines, variable_lines

KIND = Kind(slurm=True, pyxis=True)


def write(plan: Plan) -> Written:
    """Return the variables and one srun, which has the options of the job and of the step."""
    stepped = {item.name for item in plan.step}
    options = [item.text for item in plan.job if item.name not in stepped]
    lines = variable_lines(plan)
    if plan.request.compile:
        lines.append(step_lines(plan, ranks_command(plan, (*plan.target.launch.compile, *plan.command)), options))
    lines.append(step_lines(plan, ranks_command(plan, plan.command), options))
    return Written("\n".join(lines) + "\n")
