"""An MPIJob of Kubeflow (kubeflow.org/v2beta1): mpirun in a launcher, one worker for each node."""

from __future__ import annotations

from envbuild.core.errors import SpecError
from envbuild.launch.kubernetes import (
    image_reference,
    job_name,
    mount_lines,
    resource_lines,
    resource_notes,
    volume_lines,
)
from envbuild.launch.model import Kind, Plan, Written
from envbuild.launch.quoting import pod_list, yaml_string
from envbuild.launch.ssh_server import CLIENT, PROGRAM, START, require_server

KIND = Kind(by_reference=True)
ALLOWED = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")


def write(plan: Plan) -> Written:
    """Return the file. A variable of the launcher's container does not reach the workers: each is an -x of mpirun."""
    if not plan.mpi:
        hint = "type --mpi if it is, or use --as trainjob"
        raise SpecError("an MPIJob starts programs with MPI, and the command is not known as one", hint)
    require_server(plan.image)
    image = yaml_string(image_reference(plan))
    exports = [word for item in plan.env for word in ("-x", f"{item.name}={item.value}")]
    exports += [word for name in image_names(plan) for word in ("-x", name)]
    agent = ["--mca", "plm_rsh_args", CLIENT]
    ranks = ["-np", str(plan.ranks), "--map-by", f"ppr:{plan.tasks_per_node}:node"]
    command = ["mpirun", *agent, *ranks, *exports, *plan.command]
    resources = resource_lines(plan, "            ")
    unknown = f"# the image has an SSH server ({PROGRAM}), with which the launcher reaches the workers"
    lines = [
        *([unknown] if plan.image.ssh_server is None else []),
        *resource_notes(plan),
        "apiVersion: kubeflow.org/v2beta1",
        "kind: MPIJob",
        "metadata:",
        f"  name: {job_name(plan)}",
        "spec:",
        f"  slotsPerWorker: {plan.tasks_per_node}",
        "  mpiReplicaSpecs:",
        "    Launcher:",
        "      replicas: 1",
        "      template:",
        "        spec:",
        "          containers:",
        "          - name: launcher",
        f"            image: {image}",
        "            env:",
        *(f'            - {{name: {name}, value: "1"}}' for name in ALLOWED),
        f"            command: {pod_list(command)}",
        "    Worker:",
        f"      replicas: {plan.nodes}",
        "      template:",
        "        spec:",
        "          volumes:",
        *volume_lines(plan, "          "),
        "          containers:",
        "          - name: worker",
        f"            image: {image}",
        f"            command: {pod_list(['sh', '-c', START])}",
        "            securityContext:",
        "              capabilities: {add: [IPC_LOCK]}",
        "            volumeMounts:",
        *mount_lines(plan, "            "),
        *(["            resources:", *resources] if resources else []),
    ]
    return Written("\n".join(lines) + "\n", ("kubectl", "create", "-f", "-"))


def image_names(plan: Plan) -> list[str]:
    """Return the variables of the image, such as PATH, which a program that ssh starts does not have: Open MPI 4.1.4
    and 5.0.7 find no program of the image without ``-x PATH``. The operator empties NVIDIA_… of the launcher."""
    set_here = {item.name for item in plan.env}
    return [name for name in sorted(plan.image.env) if name not in set_here and not name.startswith("NVIDIA_")]
