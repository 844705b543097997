"""NVIDIA GPUs: by the PCI bus, by the kernel module, by nvidia-smi."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ..host import Host
from ..tools.lspci import PciDevice, parse_lspci
from ..tools.nvidia_smi import SLOT, Gpu, SmiReport, parse_smi
from ..tools.nvidia_topo import Topology, parse_topology
from .place import container_sign, job_id

SMI = ("nvidia-smi", "-q")
TOPOLOGY = ("nvidia-smi", "topo", "-m")
LSPCI = ("lspci", "-Dnn")
NVIDIA, AMAZON = "10de", "1d0f"
GPU_KINDS = ("0300", "0302")  # VGA and 3D controllers
BOARDS = ("hbm3", "sxm", "b200", "b300")  # in the names of GPUs of boards
PROC = "/proc/driver/nvidia"
# exit codes of nvidia-smi(1), RETURN VALUE; with that of the infoROM, all GPUs are printed
CORRUPTED, POWER, INTERRUPTS = 14, 8, 10
MEANINGS = {
    CORRUPTED: "an infoROM is corrupted",
    POWER: "the power cables of a GPU are not properly attached",
    INTERRUPTS: "the kernel found an issue with the interrupts of a GPU",
}
WITHOUT_GPUS = "this job has no GPU, of those that the node has: srun --gpus-per-node=N"


class ModuleGpu(NamedTuple):
    """A GPU as the kernel module has it."""

    bus: str
    model: str
    uuid: str
    minor: str
    firmware: str
    excluded: str


def pci_devices(host: Host) -> list[PciDevice]:
    """Return the devices of the PCI bus."""
    return host.once(read_pci)


def read_pci(host: Host) -> list[PciDevice]:
    """Read the devices from /sys or, where that is hidden, from lspci."""
    folder = "/sys/bus/pci/devices"
    found = []
    for slot in host.names(folder):
        kind, vendor, device = (host.text(f"{folder}/{slot}/{name}")[2:] for name in ("class", "vendor", "device"))
        found.append(PciDevice(slot, kind[:4], vendor, device))
    if found or not host.programs.find(LSPCI[0]):
        return found
    return parse_lspci(host.output(*LSPCI).text)


def pci_gpus(host: Host) -> list[PciDevice]:
    """Return the NVIDIA GPUs of the PCI bus."""
    return [one for one in pci_devices(host) if one.vendor == NVIDIA and one.kind in GPU_KINDS]


def pci_driver(host: Host, slot: str) -> str:
    """Return the name of the kernel's driver for a device of the PCI bus, or ""."""
    return host.link_name(f"/sys/bus/pci/devices/{slot}/driver")


def driver_version(host: Host) -> str:
    """Return the version of the kernel module that is loaded, or ""."""
    version = host.text("/sys/module/nvidia/version")
    if version:
        return version
    found = re.search(r"^NVRM version:.*?\s(\d{3}\.\d+(?:\.\d+)?)\s", host.text(f"{PROC}/version") + " ", re.MULTILINE)
    return found[1] if found else ""


def has_open_module(host: Host) -> bool:
    """Return whether the kernel module is the open one."""
    return "Open Kernel Module" in host.text(f"{PROC}/version")


def module_gpus(host: Host) -> list[ModuleGpu]:
    """Return the GPUs that the kernel module drives."""
    return host.once(read_module_gpus)


def read_module_gpus(host: Host) -> list[ModuleGpu]:
    """Read what the kernel module states about its GPUs."""
    found = []
    for bus in host.names(f"{PROC}/gpus"):
        pairs = [line.partition(":") for line in host.text(f"{PROC}/gpus/{bus}/information").splitlines()]
        values = {key.strip(): value.strip() for key, _, value in pairs}
        found.append(
            ModuleGpu(
                bus,
                values.get("Model", ""),
                values.get("GPU UUID", ""),
                values.get("Device Minor", ""),
                values.get("GPU Firmware", ""),
                values.get("GPU Excluded", ""),
            )
        )
    return found


def usable_gpus(host: Host) -> list[ModuleGpu]:
    """Return the GPUs that the kernel module drives and does not exclude."""
    return [gpu for gpu in module_gpus(host) if gpu.excluded.lower() != "yes"]


def wants_smi(host: Host) -> bool:
    """Return whether nvidia-smi can state anything. Without the driver it would load it, by nvidia-modprobe."""
    return bool(host.programs.find(SMI[0])) and bool(module_gpus(host) or driver_version(host))


def smi_fault(host: Host) -> str:
    """Return why nothing is known from nvidia-smi, or ""."""
    if not host.programs.find(SMI[0]):
        return "nvidia-smi is not installed"
    if not wants_smi(host):
        return "the NVIDIA driver is not loaded" if pci_gpus(host) else "there is no NVIDIA GPU"
    if without_gpus(host):
        return WITHOUT_GPUS
    if failure := smi_failure(host):
        return failure
    report = smi_report(host)
    if not report.complete:
        return "the output of nvidia-smi -q is truncated"
    return "no GPU answers the driver" if report.silent and not report.gpus else ""


def smi_failure(host: Host) -> str:
    """Return how nvidia-smi failed where it is installed and there is a GPU, or ""."""
    if not wants_smi(host):
        return ""
    output = host.output(*SMI)
    if without_gpus(host) or not (output.fault or output.code):
        return ""
    if output.code == CORRUPTED and smi_report(host).complete:
        return ""
    if meaning := MEANINGS.get(output.code):
        return output.fault or f"nvidia-smi -q ended with exit code {output.code}: {meaning}"
    return output.failure("nvidia-smi -q")


def without_gpus(host: Host) -> bool:
    """Return whether this is a job that requested no GPU, on a node where Slurm hides the others (ConstrainDevices): a
    GPU whose device file opens is not hidden."""
    output = host.output(*SMI) if wants_smi(host) and job_id(host) else None
    if output is None or "No devices were found" not in output.text + output.errors:
        return False
    return not any(is_open(host, gpu) for gpu in module_gpus(host))


def is_open(host: Host, gpu: ModuleGpu) -> bool:
    """Return whether this process may open the device file of a GPU."""
    return gpu.minor.isdigit() and not host.open_fault(f"/dev/nvidia{gpu.minor}")


def uninitialised_gpus(host: Host) -> list[str]:
    """Return the GPUs that the kernel module lists and nvidia-smi does not: the driver could not start them. Those
    whose device file is closed here belong to other jobs or containers."""
    report = smi_report(host)
    if not report.complete:
        return []
    answered = {gpu.bus.lower()[-SLOT:] for gpu in (*report.gpus, *report.silent)}
    lacking = [gpu for gpu in module_gpus(host) if gpu.bus.lower()[-SLOT:] not in answered]
    lacking = [gpu for gpu in lacking if gpu.excluded.lower() != "yes"]
    hides = bool(job_id(host)) or bool(container_sign(host))
    return [gpu.bus for gpu in lacking if not hides or is_open(host, gpu)]


def smi_report(host: Host) -> SmiReport:
    """Return the answer of nvidia-smi; an empty one without it."""
    return host.once(read_smi)


def read_smi(host: Host) -> SmiReport:
    """Read the answer of nvidia-smi."""
    known = {
        bus.lower()[-SLOT:] for bus in (*(gpu.bus for gpu in module_gpus(host)), *(one.slot for one in pci_gpus(host)))
    }
    return parse_smi(host.output(*SMI).text, known) if wants_smi(host) else SmiReport()


def resetting(buses: Iterable[str]) -> str:
    """Return the commands that reset GPUs: daemons that hold them end before."""
    stop = "without jobs: systemctl stop nvidia-persistenced nvidia-dcgm"
    return f"drain the node; {stop}; nvidia-smi --gpu-reset -i {','.join(buses)}, then start them; or reboot"


def topology(host: Host) -> tuple[Topology, str]:
    """Return the links between GPUs, and why they are not known ("" if they are)."""
    if not wants_smi(host):
        return Topology(), smi_fault(host)
    output = host.output(*TOPOLOGY)
    if output.fault or output.code:
        return Topology(), output.failure("nvidia-smi topo -m")
    found = parse_topology(output.text)
    return found, "" if found.complete else "the output of nvidia-smi topo -m is truncated"


def is_board(model: str) -> bool:
    """Return whether a GPU is one of a board with NVLink, and no card, by its name: NVIDIA H100 80GB HBM3, H200."""
    words = model.lower().replace("-", " ").split()
    is_card = bool({"pcie", "nvl"} & set(words))
    return not is_card and ("h200" in words or any(mark in model.lower() for mark in BOARDS))


def is_divided(gpu: Gpu) -> bool:
    """Return whether a GPU is in MIG mode: it then uses no NVLink (NVIDIA's Fabric Manager User Guide)."""
    return gpu.value("MIG Mode/Current").lower() == "enabled"


def models(host: Host) -> list[str]:
    """Return the model of each GPU."""
    found = [gpu.model for gpu in module_gpus(host)]
    return found or [gpu.value("Product Name") for gpu in smi_report(host).gpus]
