"""mpirun of the host without a scheduler: a host file with one name a line; enroot starts each rank."""

from __future__ import annotations

from envbuild.core.errors import SpecError
from envbuild.core.shell import shell_word
from envbuild.launch.model import Kind, LaunchImage, Plan, Written
from envbuild.launch.quoting import assignment, in_own_shell, shell_command

KIND = Kind(hosts=True, apart=True)
PREFIX = "ENVBUILD_RANK_"  # of variables on their way to the ranks
# enroot passes named variables alone: here those with which mpirun and its ranks find each other.
PASSED = "s/^((OMPI|PMIX|PRTE|ORTE|OPAL)_[A-Za-z0-9_]*)=.*/--env \\1/p"


def write(plan: Plan) -> Written:
    """Return the script: host file, mpirun, a shell in each rank that starts the image."""
    if not plan.mpi:
        raise SpecError(
            "mpirun starts programs with MPI, and the command is not known as one",
            hint="type --mpi if it is, or use --as docker or sbatch",
        )
    if not plan.image.squashfs:
        raise no_file_error(plan.image)
    hosts = plan.request.hosts or ("localhost",)
    words = ["mpirun", "--hostfile", '"$hosts"', "-np", str(plan.ranks), "--map-by", f"ppr:{plan.tasks_per_node}:node"]
    if plan.tasks_per_node > 1 and plan.target.gpus:
        words += ["--bind-to", "numa"]
    # By name: other users of the machine can read the arguments of a program. And by a name of their own: what is meant
    # for the ranks, such as PATH, has no effect on the mpirun of the host.
    passed = [f"-x {PREFIX}{item.name}" for item in plan.env]
    named = "".join(f'export {item.name}="${PREFIX}{item.name}"; ' for item in plan.env)
    start = ["enroot", "start", "--mount", "/tmp:/tmp"]
    start += [part for mount in plan.mounts for part in ("--mount", mount if ":" in mount else f"{mount}:{mount}")]
    start += [part for item in plan.env for part in ("--env", item.name)]
    named += f"exec {shell_command(start)} $(env | sed -nE {shell_word(PASSED)})"
    inner = f'{named} {shell_word(plan.image.squashfs)} "$@"'
    lines = [" ".join(words), *passed, shell_command(["sh", "-c", inner, "sh", *plan.command])]
    text = [
        "hosts=$(mktemp)  # one name a line",
        "trap 'rm -f \"$hosts\"' EXIT",
        f"printf '%s\\n' {shell_command(hosts)} > \"$hosts\"",
        *(assignment(f"{PREFIX}{item.name}", item.value) for item in plan.env),
        " \\\n  ".join(lines),
    ]
    return Written(in_own_shell(text))


def no_file_error(image: LaunchImage) -> SpecError:
    """Return the error for an image without a file that nodes read."""
    if image.lacks_path[0]:
        return SpecError(*image.lacks_path)
    name = image.reference.removeprefix("docker://")
    return SpecError(
        "mpirun starts a squashfs file with enroot", f"envbuild pull {name} -o image.sqsh; then name image.sqsh"
    )
