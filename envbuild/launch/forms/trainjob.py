"""A TrainJob of Kubeflow Trainer (trainer.kubeflow.org/v1alpha1) on the runtime torch-distributed."""

from __future__ import annotations

from envbuild.core.errors import SpecError
from envbuild.launch.kubernetes import (
    env_lines,
    image_reference,
    job_name,
    mount_lines,
    resource_lines,
    resource_notes,
    volume_lines,
)
from envbuild.launch.model import Kind, Plan, Written
from envbuild.launch.quoting import pod_list, yaml_string
from envbuild.launch.torchrun_words import torchrun_words

KIND = Kind(one_task=True, by_reference=True)


def write(plan: Plan) -> Written:
    """Return the file. The runtime passes torchrun the number of nodes and workers."""
    if plan.mpi:
        raise SpecError("a TrainJob starts torchrun, and the command starts MPI", hint="use --as mpijob")
    words = torchrun_words(plan)
    plain = words[-1:] if words[-1] == "--no_python" else []
    command = [words[0], *plain, *plan.command]
    resources, env = resource_lines(plan, "    "), env_lines(plan, "      ")
    lines = [
        "# runtimePatches: of Kubeflow Trainer 2.3 and newer",
        *resource_notes(plan),
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
        f"    command: {pod_list(command)}",
        *(["    env:", *env] if env else []),
        *(["    resourcesPerNode:", *resources] if resources else []),
        *patch_lines(plan),
    ]
    return Written("\n".join(lines) + "\n", ("kubectl", "create", "-f", "-"))


def patch_lines(plan: Plan) -> list[str]:
    """Return what the container needs and the runtime does not have: shared memory, locked memory, folders of the
    nodes (kubeflow/trainer, trainjob_types.go: RuntimePatch; its job and container are called node)."""
    indent = " " * 20
    return [
        "  runtimePatches:",
        "  - manager: envbuild",
        "    trainingRuntimeSpec:",
        "      template:",
        "        spec:",
        "          replicatedJobs:",
        "          - name: node",
        "            template:",
        "              spec:",
        "                template:",
        "                  spec:",
        f"{indent}volumes:",
        *volume_lines(plan, indent),
        f"{indent}containers:",
        f"{indent}- name: node",
        f"{indent}  securityContext:",
        f"{indent}    capabilities: {{add: [IPC_LOCK]}}",
        f"{indent}  volumeMounts:",
        *mount_lines(plan, f"{indent}  "),
    ]
