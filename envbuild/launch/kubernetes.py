"""Parts that the forms for Kubernetes have in common: image, resources, names."""

from __future__ import annotations

import re

from envbuild.core.errors import SpecError
from envbuild.launch.model import Plan
from envbuild.launch.quoting import pod_string, yaml_string
from envbuild.launch.registry_image import check_has_layers

RDMA = "rdma/ib"  # of several names that clusters have
NAME = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"  # a label of RFC 1123


def image_reference(plan: Plan) -> str:
    """Return the image as a cluster pulls it. Raises SpecError if it is in no registry."""
    check_has_layers(plan.image)
    if not plan.image.reference:
        why, hint = plan.image.lacks_reference
        message = f"Kubernetes pulls images from a registry, and none is known for {plan.image.name}"
        raise SpecError(
            f"{message}: {why}" if why else message, hint or "name an image of the project, or docker://REGISTRY/…:TAG"
        )
    return plan.image.reference.removeprefix("docker://")


def job_name(plan: Plan) -> str:
    """Return the name of the job. Raises SpecError for one that Kubernetes does not accept."""
    name = re.sub(r"[._]+", "-", plan.name)
    if not re.fullmatch(NAME, name):
        raise SpecError(f"'{plan.name[:60]}' is not a name of Kubernetes", hint="type --name with a-z, 0-9 and '-'")
    return name


def resource_lines(plan: Plan, indent: str) -> list[str]:
    """Return requests and limits of a node: GPUs, devices of the fabric."""
    found = {"nvidia.com/gpu": plan.gpus} if plan.target.sm else {}
    if plan.target.gpus and not plan.target.sm:
        found["aws.amazon.com/neuron"] = plan.gpus
    if plan.target.efa:
        found["vpc.amazonaws.com/efa"] = plan.target.efa
    elif plan.target.nics and plan.target.nics.layer == "InfiniBand":
        found[plan.rdma or RDMA] = 1
    if not found:
        return []
    values = [f"{indent}    {yaml_string(name)}: {count}" for name, count in found.items()]
    return [f"{indent}  requests:", *values, f"{indent}  limits:", *values]


def resource_notes(plan: Plan) -> list[str]:
    """Return a comment about the resource whose name each cluster chooses, where the site does not state it."""
    named = not plan.rdma and any(RDMA in line for line in resource_lines(plan, ""))
    note = "kubectl describe nodes | grep rdma; write it into site.yaml: rdma: NAME"
    return [f"# {RDMA}: the device plugin of a cluster may name it otherwise: {note}"] if named else []


def volume_lines(plan: Plan, indent: str) -> list[str]:
    """Return the volumes of a pod: /dev/shm, which has 64 MB otherwise, and folders of the nodes."""
    paths = [split_mount(mount)[0] for mount in plan.mounts]
    shm = [f"{indent}- name: shm", f"{indent}  emptyDir: {{medium: Memory}}"]
    folders = enumerate(paths)
    return [*shm, *(f"{indent}- {{name: host-{at}, hostPath: {{path: {yaml_string(path)}}}}}" for at, path in folders)]


def mount_lines(plan: Plan, indent: str) -> list[str]:
    """Return the places of the volumes in a container."""
    lines = [f"{indent}- {{name: shm, mountPath: /dev/shm}}"]
    for at, (_, place, closed) in enumerate(map(split_mount, plan.mounts)):
        flag = ", readOnly: true" if closed else ""
        lines.append(f"{indent}- {{name: host-{at}, mountPath: {yaml_string(place)}{flag}}}")
    return lines


def env_lines(plan: Plan, indent: str) -> list[str]:
    """Return the variables of a container."""
    return [f"{indent}- {{name: {item.name}, value: {pod_string(item.value)}}}" for item in plan.env]


def split_mount(mount: str) -> tuple[str, str, bool]:
    """Return the folder of the node, the place in the container, and whether it is read-only there."""
    source, _, rest = mount.partition(":")
    place, _, flags = rest.partition(":")
    return source, place or source, "ro" in re.split("[+,]", flags)
