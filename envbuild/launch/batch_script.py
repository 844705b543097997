"""The batch script of a Slurm job: options of the job as #SBATCH lines, variables, steps."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envbuild.core.shell import shell_word
from envbuild.core.text import printable
from envbuild.launch.model import RENDEZVOUS, Plan
from envbuild.launch.quoting import sbatch_line
from envbuild.launch.steps import PORT, has_port, inner_command, ranks_command, step_lines, variable_lines


def batch_script(plan: Plan, command: Sequence[str], rank_names: Sequence[str] = ()) -> str:
    """Return the script that starts `command`. `rank_names`: variables that a shell of each task exports."""
    stated = {item.name for item in plan.job}
    # With slashes the name would be a path; sbatch replaces nothing behind a backslash.
    file = re.sub(r"[/\\]", "-", plan.name).replace("%", "%%") if "/" in plan.name else "%x"
    usual = {"--job-name": plan.name, "--output": f"{file}_%j.out"}
    options = [f"{name}={value}" for name, value in usual.items() if name not in stated]
    options += [item.text for item in plan.job]
    head = [
        "#!/bin/bash",
        *map(sbatch_line, options),
        f"# image {printable(plan.image.name)}, target {plan.target.name}",
        *(["# for a job of root; a user's has --no-container-remap-root"] if plan.request.root else []),
    ]
    steps = plan.target.launch.host_steps
    head += [f"# once on each node, as root: {printable(step)} ({printable(why)})" for step, why in steps.items()]
    head += [f"# expected: {line}" for line in plan.expect]
    # An image that defines them, too, under a pyxis without --container-env: each task sets them in the container.
    inside = not plan.container_env and set(RENDEZVOUS[plan.rendezvous]) & set(plan.beats_image)
    body = ["set -eu", *image_check(plan), *variable_lines(plan), *([] if inside else rendezvous_lines(plan))]
    first = [(*plan.target.launch.compile, *command)] if plan.request.compile else []
    for words in (*first, command):
        started = ranks_command(plan, words) if inside else inner_command(plan, wrap_ranks(words, rank_names))
        body.append(step_lines(plan, started))
    return "\n".join([*head, *body]) + "\n"


def wrap_ranks(command: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return a command that exports `names` in each task first."""
    return ["sh", "-c", f'export {" ".join(names)}; exec "$@"', "sh", *command] if names else list(command)


def image_check(plan: Plan) -> list[str]:
    """Return the lines that end the job with a message where the node cannot read the file of the image."""
    if not plan.image.squashfs:
        return []
    path = shell_word(plan.image.squashfs)
    message = shell_word(f"error: this node cannot read {plan.image.squashfs}")
    return [f"[ -r {path} ] || {{ echo {message} >&2; exit 1; }}"]


def rendezvous_lines(plan: Plan) -> list[str]:
    """Return the lines that export the address at which PyTorch's ranks meet."""
    if not plan.rendezvous:
        return []
    lines = ['MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)']
    names = ["MASTER_ADDR"]
    if not has_port(plan):
        lines.append(f"MASTER_PORT={PORT}")
        names.append("MASTER_PORT")
    if plan.rendezvous == "ranks":
        lines.append("WORLD_SIZE=$SLURM_NTASKS")
        names.append("WORLD_SIZE")
    return [*lines, f"export {' '.join(names)}"]
