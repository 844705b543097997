"""Parts that the forms for Kubernetes have in common: image, resources, names."""

from __future__ import annotations

import re

from envbuild.core.errors import SpecError
from envbuild.launch.model import Plan
from envbuild.launch.quoting import yaml_string

NAME = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"  # a label of RFC 1123


def image_reference(plan: Plan) -> str:
    """Return the image as a cluster pulls it. Raises SpecError if it is in no registry."""
    if not plan.image.reference:
        hint = (
            "write registry: REGISTRY/TEAM into site.yaml, then: envbuild publish NAME; or name docker://REGISTRY/…:TAG"
        )
        raise SpecError(f"Kubernetes pulls images from a registry, and none is known for {plan.image.name}", hint)
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
        found["rdma/ib"] = 1
    if not found:
        return []
    values = [f"{indent}    {yaml_string(name)}: {count}" for name, count in found.items()]
    return [f"{indent}  requests:", *values, f"{indent}  limits:", *values]


def env_lines(plan: Plan, indent: str) -> list[str]:
    """Return the variables of a container."""
    return [f"{indent}- {{name: {item.name}, value: {yaml_string(item.value)}}}" for item in plan.env]


def split_mount(mount: str) -> tuple[str, str, bool]:
    """Return the folder of the node, the place in the container, and whether it is read-only there."""
    source, _, rest = mount.partition(":")
    place, _, flags = rest.partition(":")
    return source, place or source, "ro" in re.split("[+,]", flags)
