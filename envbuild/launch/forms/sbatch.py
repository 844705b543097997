"""A batch script of Slurm with pyxis."""

from __future__ import annotations

from envbuild.launch.batch_script import batch_script
from envbuild.launch.model import Kind, Plan, Written
from envbuild.launch.steps import rank_names

KIND = Kind(slurm=True, pyxis=True)


def write(plan: Plan) -> Written:
    """Return the script; sbatch reads it from its standard input."""
    return Written(batch_script(plan, plan.command, rank_names(plan)), ("sbatch",))
