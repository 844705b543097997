"""A TrainJob of Kubeflow Trainer (trainer.kubeflow.org/v1alpha1) on the runtime torch-distributed."""

from __future__ import annotations

from envbuild.core.errors import SpecError
from envbuild.core.text import printable
from envbuild.launch.kubernetes import env_lines, image_reference, job_name, resource_lines
from envbuild.launch.model import Kind, Plan, Written
from envbuild.launch.quoting import yaml_list, yaml_string
from envbuild.launch.torchrun_words import torchrun_words

KIND = Kind(one_task=True)


def write(plan: Plan) -> Written:
    """Return the file. The runtime passes torchrun the number of nodes and workers."""
    if plan.mpi:
        raise SpecError("a TrainJob starts torchrun, and the command starts MPI", hint="use --as mpijob")
    words = torchrun_words(plan)
    plain = words[-1:] if words[-1] == "--no_python" else []
    command = [words[0], *plain, *plan.command]
    resources, env = resource_lines(plan, "    "), env_lines(plan, "      ")
    mounts = ", ".join(plan.mounts)
    lines = [
        *([f"# the runtime mounts these folders of the nodes: {printable(mounts)}"] if mounts else []),
        "apiVersion: trainer.kubeflow.org/v1alpha1",
        "kind: TrainJob",
        "metadata:",
        f"  name: {job_name(plan)}",
        "spec:",
        "  runtimeRef:",
        "    name: torch-distributed",
        "  trainer:",
        f"    image: {yaml_string(image_reference(plan))}",
        f"    numNodes: {plan.nodes}",
        f"    numProcPerNode: {plan.workers}",
        f"    command: {yaml_list(command)}",
        *(["    env:", *env] if env else []),
        *(["    resourcesPerNode:", *resources] if resources else []),
    ]
    return Written("\n".join(lines) + "\n", ("kubectl", "create", "-f", "-"))
