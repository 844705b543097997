"""A batch script of Slurm with pyxis: torchrun starts the ranks of each node."""

from __future__ import annotations

from envbuild.launch.batch_script import batch_script
from envbuild.launch.model import Kind, Plan, Written
from envbuild.launch.torchrun_words import torchrun_words

KIND = Kind(slurm=True, pyxis=True, one_task=True)


def write(plan: Plan) -> Written:
    """Return the script. A shell in each task inserts the number of its node."""
    words = torchrun_words(plan)
    if plan.nodes == 1:
        return Written(batch_script(plan, [*words, *plan.command]), ("sbatch",))
    options = '--node_rank "$SLURM_NODEID" --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT"'
    script = f'exec torchrun {options} "$@"'
    return Written(batch_script(plan, ["sh", "-c", script, "sh", *words[1:], *plan.command]), ("sbatch",))
