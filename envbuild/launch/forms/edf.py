"""An environment definition file (TOML) of CSCS' container engine, and the srun that names it."""

from __future__ import annotations

from envbuild.core.shell import shell_word
from envbuild.launch.model import Kind, Plan, Written
from envbuild.launch.quoting import edf_string, in_own_shell, shell_lines
from envbuild.launch.registry_image import check_has_layers
from envbuild.launch.steps import ranks_command

KIND = Kind(slurm=True)
END = "END_OF_EDF"


def write(plan: Plan) -> Written:
    """Return a script that writes the file into the current folder, which nodes must read, starts srun, and removes
    the file when that has ended."""
    check_has_layers(plan.image)
    names = {item.name for item in plan.job}
    options = [item.text for item in (*plan.job, *(item for item in plan.step if item.name not in names))]
    words = ["srun", *options, "--environment=FILE", *ranks_command(plan, plan.command)]
    start = shell_lines(words).replace("--environment=FILE", '--environment="$edf"', 1)
    # a new file: one of that name may be something else, such as pyproject.toml
    name = shell_word(f"{plan.name}.XXXXXX.toml".replace("/", "-"))
    file = [f'edf=$(mktemp -- "$PWD"/{name})', "trap 'rm -f -- \"$edf\"' EXIT"]
    lines = ["set -eu", *file, f"cat > \"$edf\" <<'{END}'", *edf_lines(plan), END, start]
    return Written(in_own_shell(lines))


def edf_lines(plan: Plan) -> list[str]:
    """Return the lines of the file. A value of `env` beats the image's."""
    image = plan.container[0].text.removeprefix("--container-image=")
    mounts = [edf_string(mount if ":" in mount else f"{mount}:{mount}") for mount in plan.mounts]
    lines = [
        f"image = {edf_string(image)}",
        "entrypoint = false",
        "writable = false",
        f"mounts = [{', '.join(mounts)}]",
    ]
    if plan.env:
        lines += ["", "[env]", *(f"{item.name} = {edf_string(item.value)}" for item in plan.env)]
    return lines
