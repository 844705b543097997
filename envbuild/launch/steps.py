"""Parts that several forms have in common: the step of a job, and what the shell in a container exports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from envbuild.launch.model import INSIDE, Plan
from envbuild.launch.quoting import assignment, shell_lines

PORT = "$((SLURM_JOB_ID % 4536 + 61000))"  # as enroot's hook 50-slurm-pytorch.sh has it: one for each job
FIXED_PORT = "29500"  # PyTorch's default, where no scheduler runs several jobs on a node
# Sets h to the first host of SLURM_STEP_NODELIST (rack[1-2]n[003-016,020],login), without scontrol, which is not in the
# container: texts up to a bracket or a comma, and of each bracket the first number.
FIRST_HOST = (
    'h=; r=$SLURM_STEP_NODELIST; while :; do a=${r%%[[,]*}; h=$h$a; r=${r#"$a"}; '
    'case $r in "["*) r=${r#?}; h=$h${r%%[],-]*}; r=${r#*"]"};; *) break;; esac; done'
)


def variable_lines(plan: Plan) -> list[str]:
    """Return the lines of a shell that export the variables of a job; not those with effect on srun itself."""
    inside = INSIDE if plan.pyxis else ()
    return [assignment(item.name, item.value) for item in plan.env if item.name not in inside]


def has_port(plan: Plan) -> bool:
    """Return whether MASTER_PORT has a fixed value."""
    return any(item.name == "MASTER_PORT" for item in plan.env)


def rank_names(plan: Plan) -> tuple[str, ...]:
    """Return the assignments with which each task states its rank: pyxis makes them where the image has
    PYTORCH_VERSION."""
    if plan.rendezvous != "ranks" or (plan.pyxis and "PYTORCH_VERSION" in plan.image.env):
        return ()
    return ("RANK=$SLURM_PROCID", "LOCAL_RANK=$SLURM_LOCALID")


def inner_command(plan: Plan, command: Sequence[str]) -> list[str]:
    """Return the command as it is started in the container. Where pyxis cannot let the job's variables win over the
    image's, ``env`` sets them there, and always those with effect on srun."""
    names = {*(() if plan.container_env else plan.beats_image), *(INSIDE if plan.pyxis else ())}
    own = [f"{item.name}={item.value}" for item in plan.env if item.name in names]
    return [*(["env", *own] if own else []), *command]


def ranks_command(plan: Plan, command: Sequence[str]) -> list[str]:
    """Return a command that exports MASTER_ADDR and its like before it starts, from what Slurm sets for each task.
    For a step that no script prepares."""
    if not plan.rendezvous:
        return inner_command(plan, command)
    names = ["MASTER_ADDR=$h"]
    if not has_port(plan):
        names.append(f"MASTER_PORT={PORT}")
    if plan.rendezvous == "ranks":
        names += ["WORLD_SIZE=$SLURM_NTASKS", *rank_names(plan)]
    script = f'{FIRST_HOST}; export {" ".join(names)}; exec "$@"'
    return inner_command(plan, ["sh", "-c", script, "sh", *command])


def step_words(plan: Plan, command: Sequence[str], options: Iterable[str] = ()) -> list[str]:
    """Return srun with the options of the step, those of the container, and the command."""
    return ["srun", *options, *(item.text for item in (*plan.step, *plan.container)), *command]


def step_lines(plan: Plan, command: Sequence[str], options: Iterable[str] = ()) -> str:
    """Return `step_words` as lines of a shell, one option each."""
    return shell_lines(step_words(plan, command, options))
