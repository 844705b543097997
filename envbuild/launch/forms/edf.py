"""An environment definition file (TOML) of CSCS' container engine, with the srun that names it."""

from __future__ import annotations

from envbuild.launch.model import Kind, Plan, Written
from envbuild.launch.quoting import edf_string, shell_command, toml_string
from envbuild.launch.steps import ranks_command

KIND = Kind(slurm=True)


def write(plan: Plan) -> Written:
    """Return the file. Its srun is a comment at its begin; a value of `env` beats the image's."""
    options = [item.text for item in plan.job]
    names = {item.name for item in plan.job}
    options += [item.text for item in plan.step if item.name not in names]
    file = f"$PWD/{plan.name}.toml"
    command = shell_command(["srun", *options])
    start = f'{command} --environment="{file}" {shell_command(ranks_command(plan, plan.command))}'
    image = plan.container[0].text.removeprefix("--container-image=")
    lines = [
        *(f"# {line}" for line in (f"save this as {plan.name}.toml, then type:", *start.splitlines())),
        f"image = {toml_string(image)}",
        "entrypoint = false",
        "writable = false",
        f"mounts = [{', '.join(toml_string(mount if ':' in mount else f'{mount}:{mount}') for mount in plan.mounts)}]",
    ]
    if plan.env:
        lines += ["", "[env]", *(f"{item.name} = {edf_string(item.value)}" for item in plan.env)]
    return Written("\n".join(lines) + "\n", manual="srun reads the file by its name: save it first")
