"""Persistence mode is on, MIG is off, and no GPU requires a reset."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.gpus import resetting, smi_fault, smi_report
from ..host import Host
from ..model import ADMINISTRATOR, MINOR, USER, Need, Result, failed, not_run, passed

GROUP = "GPU"
RESET = ("GPU Reset Status/Reset Required", "GPU Reset Status/Drain and Reset Recommended")


def check(host: Host, need: Need) -> Iterator[Result]:
    """Judge the settings of each GPU."""
    if fault := smi_fault(host):
        yield not_run(fault)
        return
    gpus = smi_report(host).gpus
    reset = [gpu.bus for gpu in gpus if any(gpu.value(key).lower() == "yes" for key in RESET)]
    actions = {gpu.bus: gpu.value("GPU Recovery Action") for gpu in gpus}
    action = [f"{bus} ({text})" for bus, text in actions.items() if text.lower() not in ("", "none")]
    reboot = any("reboot" in text.lower() for text in actions.values())
    mig = [gpu.bus for gpu in gpus if gpu.value("MIG Mode/Current").lower() == "enabled"]
    slow = [gpu.bus for gpu in gpus if gpu.value("Persistence Mode").lower() == "disabled"]
    named = [gpu.bus for gpu in gpus if gpu.bus in reset or actions[gpu.bus].lower() not in ("", "none")]
    if named:
        yield failed(
            f"the driver requires a recovery: {', '.join(action or reset)}",
            ADMINISTRATOR,
            "drain the node, then reboot" if reboot else resetting(named),
        )
    elif mig:
        yield failed(
            f"MIG is on: {', '.join(mig)}",
            USER if need.nvidia else MINOR,
            "nvidia-smi -mig 0 (as root), or request the partitions of MIG",
        )
    elif slow:
        yield failed(f"persistence mode is off: {', '.join(slow)}", MINOR, "nvidia-smi -pm 1 (as root)")
    elif not all(gpu.value("Persistence Mode") for gpu in gpus):
        yield not_run("nvidia-smi does not state the persistence mode")
    else:
        yield passed("persistence mode is on, MIG is off")
