"""docker run on each node; torchrun starts the ranks of PyTorch."""

from __future__ import annotations

from envbuild.core.errors import SpecError
from envbuild.launch.model import Kind, Plan, Written
from envbuild.launch.quoting import shell_command, shell_lines
from envbuild.launch.registry_image import check_has_layers
from envbuild.launch.steps import FIXED_PORT
from envbuild.launch.torchrun_words import torchrun_words

KIND = Kind(docker=True, hosts=True, by_reference=True)


def write(plan: Plan) -> Written:
    """Return the command of each node, with its name where there are several. Raises SpecError for an image that Docker
    does not have under a name: that in a file was chosen by the author of the file."""
    check_has_layers(plan.image)
    if not plan.image.docker:
        raise SpecError(
            f"Docker starts no squashfs file: {plan.image.name}",
            hint="name an image of the project, or docker://NAME:TAG",
        )
    if plan.mpi and plan.nodes > 1:
        raise SpecError("docker starts no MPI over several nodes", hint="use --as mpirun, sbatch or mpijob")
    own = f"# an image of this node's Docker Engine, after: envbuild export {plan.image.name} --to docker\n"
    own = "" if plan.image.reference else own
    if plan.nodes == 1:
        return Written(f"{own}{docker_lines(plan, 0)}\n")
    blocks = [f"# on {host}\n{docker_lines(plan, number)}" for number, host in enumerate(plan.request.hosts)]
    return Written(own + "\n".join(blocks) + "\n", manual="each command is typed on its own node")


def docker_lines(plan: Plan, node: int) -> str:
    """Return docker run for one node, with one option a line."""
    # Docker queries a registry about a name that it lacks: an image of the project is in none, another one may be.
    own = () if plan.image.reference else ("--pull=never",)
    words = ["--rm", *own, *(gpu_option(plan, item.text) for item in plan.docker)]
    names = {item.name for item in plan.env}
    values = [(item.name, item.value) for item in plan.env]
    if plan.rendezvous == "address":
        values += [("MASTER_ADDR", plan.request.hosts[0])]
        values += [] if "MASTER_PORT" in names else [("MASTER_PORT", FIXED_PORT)]
    words += [f"--env={name}={value}" for name, value in values]
    words += [f"--volume={mount if ':' in mount else f'{mount}:{mount}'}" for mount in plan.mounts]
    reference = plan.image.docker
    start = ranks_words(plan, node)
    options = shell_lines(words)
    return f"docker run {options} \\\n  {shell_command([reference, *start])}"


def ranks_words(plan: Plan, node: int) -> list[str]:
    """Return the command, with torchrun before it where it has ranks to start."""
    if plan.rendezvous != "ranks":
        return list(plan.command)
    words = torchrun_words(plan)
    if plan.nodes > 1:
        port = next((item.value for item in plan.env if item.name == "MASTER_PORT"), FIXED_PORT)
        words[2:2] = [f"--node_rank={node}", f"--master_addr={plan.request.hosts[0]}", f"--master_port={port}"]
    return [*words, *plan.command]


def gpu_option(plan: Plan, option: str) -> str:
    """Return an option of docker run; --gpus=all with the GPUs of the job alone, where it does not have all."""
    if option != "--gpus=all" or plan.gpus == plan.target.gpus:
        return option
    return f'--gpus="device={",".join(map(str, range(plan.gpus)))}"'
