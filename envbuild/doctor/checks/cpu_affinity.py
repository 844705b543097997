"""The process may use the CPUs of every NUMA node, or of whole ones: a wrong mask halves the bandwidth to GPUs."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..facts.cpu import numa_cpus
from ..host import Host
from ..model import MINOR, Need, Result, failed, not_run, passed

GROUP = "machine"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare the mask of this process with the NUMA nodes."""
    nodes = {name: cpus for name, cpus in numa_cpus(host).items() if cpus}
    if not host.is_real or not nodes:
        yield not_run("/sys has no NUMA nodes")
        return
    mask = os.sched_getaffinity(0)
    usable = [name for name, cpus in nodes.items() if cpus & mask]
    total = len(set().union(*nodes.values()))
    detail = f"{len(mask)} of {total} CPUs, on {len(usable)} of {len(nodes)} NUMA nodes"
    if need.gpus > 1 and len(mask) < need.gpus and total >= need.gpus:
        fix = "srun --cpus-per-task=N --exclusive (Slurm 22.05 to 23.02: also on the line of srun)"
        yield failed(f"{detail}: fewer CPUs than the {need.gpus} GPUs of {need.source}", MINOR, fix)
    else:
        yield passed(detail)
