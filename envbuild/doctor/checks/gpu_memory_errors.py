"""ECC is on, and no GPU has uncorrectable errors or memory that waits to be repaired."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.gpus import resetting, smi_fault, smi_report
from ..host import Host
from ..model import ADMINISTRATOR, HARDWARE, MINOR, Need, Result, failed, not_run, passed
from ..tools.nvidia_smi import Gpu

GROUP = "GPU"
UNCORRECTED = (  # names since driver 440, 530 and 555
    "ECC Errors/Volatile/SRAM Uncorrectable", "ECC Errors/Volatile/SRAM Uncorrectable Parity",
    "ECC Errors/Volatile/SRAM Uncorrectable SEC-DED", "ECC Errors/Volatile/DRAM Uncorrectable",
)  # fmt: skip
FAILURES = (  # what NVIDIA replaces a GPU for (drivers since 440, 550, 570)
    ("Remapped Rows/Remapping Failure Occurred", "rows cannot be remapped"),
    ("ECC Errors/Aggregate/SRAM Threshold Exceeded", "more errors of SRAM than a GPU may have"),
    ("ECC Errors/Unrepairable Memory", "memory cannot be repaired"),
)
PENDING = "Remapped Rows/Pending"
REPAIRS = (
    (PENDING, "rows wait to be remapped"),
    ("Retired Pages/Pending Page Blacklist", "pages wait to be retired"),
    ("ECC Errors/Channel Repair Pending", "a channel of memory waits to be repaired"),
    ("ECC Errors/TPC Repair Pending", "a processor of the GPU (TPC) waits to be repaired"),
)
BAD = ("yes", "1")


def check(host: Host, need: Need) -> Iterator[Result]:
    """Judge the memory of each GPU."""
    if fault := smi_fault(host):
        yield not_run(fault)
        return
    gpus = smi_report(host).gpus
    broken, waiting = described(gpus, FAILURES), described(gpus, REPAIRS)
    corrupted = smi_report(host).corrupted
    counts = {gpu.bus: uncorrected(gpu) for gpu in gpus}
    errors = [f"{bus} ({count})" for bus, count in counts.items() if count]
    off = [gpu.bus for gpu in gpus if gpu.value("ECC Mode/Current").lower() == "disabled"]
    if broken:
        fix = "drain the node; NVIDIA's field diagnostics (fieldiag); replace the GPU"
        yield failed("; ".join(broken), HARDWARE, fix)
    elif waiting:
        buses = [gpu.bus for gpu in gpus if any(gpu.value(key).lower() in BAD for key, _ in REPAIRS)]
        yield failed("; ".join(waiting), ADMINISTRATOR, resetting(buses))
    elif corrupted:
        fix = "drain the node, then reboot; again: replace the GPU"
        yield failed(f"the infoROM is corrupted: {', '.join(corrupted)}", HARDWARE, fix)
    elif errors:
        fix = resetting(bus for bus, count in counts.items() if count)
        # since driver 560 it states itself whether a GPU needs a recovery (NVML_GPU_RECOVERY_ACTION of nvml.h)
        advice = {gpu.value("GPU Recovery Action") for gpu in gpus if counts[gpu.bus]}
        severity = MINOR if advice == {"None"} else ADMINISTRATOR
        yield failed(f"uncorrectable memory errors: {', '.join(errors)}", severity, fix)
    elif off:
        yield failed(f"ECC is off: {', '.join(off)}", MINOR, "nvidia-smi -e 1, then reboot")
    elif not all(gpu.value("ECC Mode/Current") for gpu in gpus):
        yield not_run("nvidia-smi does not state ECC for these GPUs")
    elif not all(gpu.value(PENDING) for gpu in gpus) and not all(count is not None for count in counts.values()):
        yield not_run("nvidia-smi states neither memory errors nor remapped rows")
    else:
        yield passed("ECC is on, no uncorrectable errors, no row waits to be remapped")


def described(gpus: tuple[Gpu, ...], signs: tuple[tuple[str, str], ...]) -> list[str]:
    """Return the meaning of each sign that a GPU has, with those GPUs."""
    found = {words: [gpu.bus for gpu in gpus if gpu.value(key).lower() in BAD] for key, words in signs}
    return [f"{words}: {', '.join(buses)}" for words, buses in found.items() if buses]


def uncorrected(gpu: Gpu) -> int | None:
    """Return the number of uncorrectable errors since the driver was loaded; None if it is not stated."""
    values = [gpu.value(name) for name in UNCORRECTED]
    found = [int(value) for value in values if value.isdigit()]
    return sum(found) if found else None
