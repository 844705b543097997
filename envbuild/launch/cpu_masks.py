"""CPU masks of the tasks of a node, from its NUMA nodes: each task runs beside its own GPU."""

from __future__ import annotations

from envbuild.core.errors import SpecError
from envbuild.net.numa import Numa


def cpu_masks(numa: Numa, tasks: int) -> tuple[int, ...]:
    """Return the mask of each task: all CPUs of the NUMA node of its GPU. Task n uses GPU n. No masks if the tasks are
    not one for each GPU."""
    if tasks != len(numa.gpus):
        return ()
    whole = (1 << numa.cpus) - 1
    masks = tuple(whole << (index * numa.cpus) for index in numa.gpus)
    check_masks(masks, numa)
    return masks


def check_masks(masks: tuple[int, ...], numa: Numa) -> None:
    """Raise SpecError unless the masks have the width of a NUMA node, are equal or disjoint, and cover all CPUs."""
    different = sorted(set(masks))
    fault = ""
    if any(mask.bit_count() != numa.cpus for mask in masks):
        fault = f"a mask does not have {numa.cpus} CPUs"
    elif any(one & other for at, one in enumerate(different) for other in different[at + 1 :]):
        fault = "masks of different NUMA nodes share CPUs"
    elif sum(different) != (1 << (numa.nodes * numa.cpus)) - 1:
        unused = sorted(set(range(numa.nodes)) - set(numa.gpus))
        fault = f"no GPU is attached to NUMA node {', '.join(map(str, unused))}, and its CPUs would be idle"
    if fault:
        hint = "correct numa in the target or in site.yaml, or leave it out: Slurm then places the tasks"
        raise SpecError(f"the CPU masks that follow from 'numa' are wrong: {fault}", hint)


def mask_option(masks: tuple[int, ...]) -> str:
    """Return the option of srun."""
    return f"--cpu-bind=mask_cpu:{','.join(f'{mask:x}' for mask in masks)}"
