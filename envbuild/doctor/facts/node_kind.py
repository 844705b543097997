"""The kind of this node: one of the target's or not, by the GPUs that Slurm has configured for it.

One health check serves nodes of several kinds: Slurm has one HealthCheckProgram for a cluster. A node of another kind
is compared with itself, and not drained because it never had those devices. Where Slurm's answer is not known, what
the node lacks of the target is a failure that drains none."""

from __future__ import annotations

from ..host import Host
from ..model import Need
from ..tools.scontrol import PARTITION, gpus_of
from .gpus import is_divided, models, module_gpus, pci_gpus, smi_report, usable_gpus
from .place import COMPUTE, find_place
from .slurm import node_answer


def configured_gpus(host: Host) -> int | None:
    """Return the number of GPUs that Slurm has configured for this compute node; None where it is not known, or where
    Slurm counts partitions of GPUs (MIG)."""
    if find_place(host)[0] != COMPUTE:
        return None
    node, fault = node_answer(host)
    configured = None if fault else gpus_of(node)
    return None if configured is None or has_partitions(host, node, configured) else configured


def has_partitions(host: Host, node: dict[str, str], configured: int) -> bool:
    """Return whether Slurm counts partitions of GPUs (MIG): its types have their names, or GPUs are divided, and it has
    another number than that of the whole GPUs."""
    if PARTITION.search(node.get("Gres", "")):
        return True
    return any(is_divided(gpu) for gpu in smi_report(host).gpus) and configured != len(usable_gpus(host))


def other_kind(host: Host, need: Need) -> str:
    """Return why this node is of another kind than the target's, or "". A site may leave out one of the GPUs that are
    here, and a GPU that is missing does not change what Slurm has configured."""
    configured = configured_gpus(host) if need.nvidia else None
    if configured is None:
        return ""
    here = len(module_gpus(host)) or len(pci_gpus(host))
    if configured != need.gpus and here != need.gpus:
        number = f"{configured or 'no'} GPU{'s' if configured != 1 else ''}"
        return f"Slurm has {number} configured for this node, and {need.source} has {need.gpus}"
    names = {name for name in models(host) if name}
    if configured == len(usable_gpus(host)) and names and not any(same_model(name, need.gpu) for name in names):
        return f"GPUs are {', '.join(sorted(names))}, as Slurm has {configured}, and {need.source} has {need.gpu}"
    return ""


def is_of_target(host: Host, need: Need) -> bool:
    """Return whether what this node lacks of the target is its fault: Slurm has as many GPUs configured as the target
    has, or the target has no NVIDIA GPUs to compare."""
    return not need.nvidia or configured_gpus(host) == need.gpus


def same_model(name: str, wanted: str) -> bool:
    """Return whether nvidia-smi's name of a GPU contains every word of a target's: NVIDIA H100 80GB HBM3."""
    words = set(name.replace("-", " ").lower().split())
    return set(wanted.replace("-", " ").lower().split()) <= words
