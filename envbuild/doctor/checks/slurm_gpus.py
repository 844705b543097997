"""Slurm has the GPUs configured that this node has, also while the node is drained."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.gpus import NVIDIA, is_divided, pci_devices, pci_gpus, smi_report, usable_gpus
from ..facts.neuron import neuron_devices
from ..facts.node_kind import has_partitions
from ..facts.place import COMPUTE, find_place
from ..facts.slurm import node_answer
from ..host import Host
from ..model import ADMINISTRATOR, HARDWARE, MINOR, Need, Result, failed, not_applicable, not_run, passed
from ..tools.lspci import PciDevice
from ..tools.scontrol import gpus_of
from .gpu_count import MISSING

GROUP = "Slurm"
GPU_VENDORS = ("1002", "8086")  # AMD, Intel


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare what the controller has with the driver and the PCI bus."""
    if find_place(host)[0] != COMPUTE:
        yield not_applicable("this is not a compute node")
        return
    node, fault = node_answer(host)
    configured, here = gpus_of(node), len(usable_gpus(host))
    if fault:
        yield not_run(fault.detail, fault.fix)
    elif configured is None:
        yield not_run("the answer of scontrol is truncated")
    elif has_partitions(host, node, configured):
        yield passed(f"{configured} GPUs and partitions of GPUs (MIG), which are not compared")
    elif divided := [gpu.bus for gpu in smi_report(host).gpus if is_divided(gpu)]:
        fix = f"nvidia-smi -mig 0 -i {','.join(divided)} (as root); or the types of its partitions in gres.conf"
        detail = f"Slurm has {configured} whole GPUs configured, and these are divided (MIG): {', '.join(divided)}"
        yield failed(detail, ADMINISTRATOR, fix)
    elif configured and not here and (unknown := not_compared(host)):
        yield not_run(f"{configured} GPUs in Slurm, not compared: {unknown}")
    elif here < configured:
        gres = f"gres.conf and Gres=gpu:{here} of slurm.conf" if here else "slurm.conf without Gres=gpu for it"
        fix = f"{MISSING}; if the node has {here}: {gres}"
        where = "the driver has" if here else "on the PCI bus there are"
        detail = f"Slurm has {configured} GPUs configured, and {where} {here}: {configured - here} missing"
        yield failed(detail, HARDWARE, fix)
    elif here > configured:  # as configured: a site may leave one out
        detail = f"Slurm has {configured} GPUs configured, and the driver has {here}"
        yield failed(detail, MINOR, "gres.conf: AutoDetect=nvml; slurm.conf: Gres=gpu:N")
    else:
        yield passed(f"{configured} GPUs")


def not_compared(host: Host) -> str:
    """Return why Slurm's GPUs are not compared with this machine, whose NVIDIA driver has none; "" if they are."""
    if not pci_devices(host):
        return "the PCI bus cannot be read"
    if pci_gpus(host):
        return "the driver lists no GPU"
    others = [one.slot for one in pci_devices(host) if is_other_accelerator(one)] or list(neuron_devices(host))
    return f"accelerators of another vendor: {', '.join(others[:8])}" if others else ""


def is_other_accelerator(device: PciDevice) -> bool:
    """Return whether a device is a GPU or another accelerator, and not NVIDIA's, by its class (pci.ids). The VGA
    controllers of servers, for their console, are of other vendors than AMD and Intel."""
    is_gpu = device.kind in ("0302", "0380") or (device.kind == "0300" and device.vendor in GPU_VENDORS)
    return device.vendor != NVIDIA and (is_gpu or device.kind.startswith("12"))
