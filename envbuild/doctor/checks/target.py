"""The node is one of the target's, by the GPUs that Slurm has configured for it.

A node of another kind is not drained: all other checks compare it with itself."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.node_kind import configured_gpus, other_kind
from ..host import Host
from ..model import USER, Need, Result, failed, not_applicable, not_run, passed

GROUP = "machine"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare what Slurm has configured with the target."""
    if not need.source:
        yield not_applicable("no target is named")
    elif why := other_kind(host, need):
        fix = "envbuild doctor TARGET, with that of this kind of node; without one it is compared with itself, as here"
        yield failed(f"this is not a node of {need.source}: {why}", USER, fix)
    elif not need.nvidia or configured_gpus(host) is None:
        yield not_run(f"only Slurm's Gres of a compute node states whether this is a node of {need.source}")
    else:
        yield passed(f"{need.source}: Slurm has {configured_gpus(host)} GPUs configured")
