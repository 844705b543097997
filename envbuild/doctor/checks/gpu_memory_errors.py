"""ECC is on, and no GPU has uncorrectable errors or rows that wait to be remapped."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.gpus import smi_fault, smi_report
from ..host import Host
from ..model import ADMINISTRATOR, HARDWARE, MINOR, Need, Result, failed, not_run, passed
from ..tools.nvidia_smi import Gpu

GROUP = "GPU"
UNCORRECTED = (  # names since driver 440, 530 and 555
    "ECC Errors/Volatile/SRAM Uncorrectable", "ECC Errors/Volatile/SRAM Uncorrectable Parity",
    "ECC Errors/Volatile/SRAM Uncorrectable SEC-DED", "ECC Errors/Volatile/DRAM Uncorrectable",
)  # fmt: skip
PENDING, FAILURE = "Remapped Rows/Pending", "Remapped Rows/Remapping Failure Occurred"
BAD = ("yes", "1")


def check(host: Host, need: Need) -> Iterator[Result]:
    """Judge the memory of each GPU."""
    if fault := smi_fault(host):
        yield not_run(fault)
        return
    gpus = smi_report(host).gpus
    replace = [gpu.bus for gpu in gpus if gpu.value(FAILURE).lower() in BAD]
    reset = [gpu.bus for gpu in gpus if gpu.value(PENDING).lower() in BAD]
    counts = {gpu.bus: uncorrected(gpu) for gpu in gpus}
    errors = [f"{bus} ({count})" for bus, count in counts.items() if count]
    off = [gpu.bus for gpu in gpus if gpu.value("ECC Mode/Current").lower() == "disabled"]
    if replace:
        yield failed(f"rows cannot be remapped: {', '.join(replace)}", HARDWARE, "drain the node; replace the GPU")
    elif reset:
        yield failed(
            f"rows wait to be remapped: {', '.join(reset)}",
            ADMINISTRATOR,
            "drain the node; nvidia-smi --gpu-reset -i BUS, or reboot",
        )
    elif errors:
        yield failed(
            f"uncorrectable memory errors: {', '.join(errors)}",
            ADMINISTRATOR,
            "drain the node; nvidia-smi --gpu-reset -i BUS",
        )
    elif off:
        yield failed(f"ECC is off: {', '.join(off)}", MINOR, "nvidia-smi -e 1, then reboot")
    elif not all(gpu.value("ECC Mode/Current") for gpu in gpus):
        yield not_run("nvidia-smi does not state ECC for these GPUs")
    elif not all(gpu.value(PENDING) for gpu in gpus) and not all(count is not None for count in counts.values()):
        yield not_run("nvidia-smi states neither memory errors nor remapped rows")
    else:
        yield passed("ECC is on, no uncorrectable errors, no row waits to be remapped")


def uncorrected(gpu: Gpu) -> int | None:
    """Return the number of uncorrectable errors since the driver was loaded; None if it is not stated."""
    values = [gpu.value(name) for name in UNCORRECTED]
    found = [int(value) for value in values if value.isdigit()]
    return sum(found) if found else None
