"""Persistence mode is on, MIG is off, and no GPU requires a reset."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.gpus import resetting, smi_fault, smi_report
from ..host import Host
from ..model import ADMINISTRATOR, MINOR, USER, Need, Result, failed, not_run, passed
from ..tools.nvidia_smi import Gpu

GROUP = "GPU"
# NVML_GPU_RECOVERY_ACTION_DRAIN_P2P of nvml.h: traffic between GPUs is to end; a reset is another action
P2P = "drain the node; when its jobs with several GPUs have ended: nvidia-smi -q | grep -i 'recovery action'"
POWER = ("GPU Power Readings", "Power Readings")  # newer and older name
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
    peer = all(text.lower() in ("", "none", "drain p2p") for text in actions.values()) and not reset
    modes = {gpu.bus: gpu.value("Compute Mode").lower() for gpu in gpus}
    prohibited = [bus for bus, mode in modes.items() if mode == "prohibited"]
    exclusive = [bus for bus, mode in modes.items() if mode == "exclusive_process"]
    mig = [gpu.bus for gpu in gpus if gpu.value("MIG Mode/Current").lower() == "enabled"]
    slow = [gpu.bus for gpu in gpus if gpu.value("Persistence Mode").lower() == "disabled"]
    named = [gpu.bus for gpu in gpus if gpu.bus in reset or actions[gpu.bus].lower() not in ("", "none")]
    if named:
        yield failed(
            f"the driver requires a recovery: {', '.join(action or [f'{bus} (Reset Required)' for bus in reset])}",
            ADMINISTRATOR,
            "drain the node, then reboot" if reboot else P2P if peer else resetting(named),
        )
    elif prohibited:
        fix = f"nvidia-smi -c 0 -i {','.join(prohibited)} (as root)"
        yield failed(
            f"compute mode is Prohibited, so that no program starts: {', '.join(prohibited)}", ADMINISTRATOR, fix
        )
    elif mig:
        yield failed(
            f"MIG is on: {', '.join(mig)}",
            USER if need.nvidia else MINOR,
            "nvidia-smi -mig 0 (as root), or request the partitions of MIG",
        )
    elif exclusive:
        fix = f"nvidia-smi -c 0 -i {','.join(exclusive)} (as root), if programs share a GPU"
        yield failed(f"compute mode is Exclusive_Process: {', '.join(exclusive)}", MINOR, fix)
    elif limited := power_limits(gpus):
        buses = ",".join(line.split(" ")[0] for line in limited)
        fix = f"nvidia-smi -pl {limited[0].split(' of ')[1].partition('.')[0]} -i {buses} (as root)"
        yield failed(f"power limit below the default: {', '.join(limited)}", MINOR, fix)
    elif slow:
        yield failed(f"persistence mode is off: {', '.join(slow)}", MINOR, "nvidia-smi -pm 1 (as root)")
    elif not all(gpu.value("Persistence Mode") for gpu in gpus):
        yield not_run("nvidia-smi does not state the persistence mode")
    else:
        yield passed("persistence mode is on, MIG is off")


def power_limits(gpus: tuple[Gpu, ...]) -> list[str]:
    """Return the GPUs whose power limit is below their default."""
    found = []
    for gpu in gpus:
        now = gpu.value(*(f"{section}/{key}" for section in POWER for key in ("Current Power Limit", "Power Limit")))
        usual = gpu.value(*(f"{section}/Default Power Limit" for section in POWER))
        if watts(now) and watts(now) < watts(usual):
            found.append(f"{gpu.bus} {now} of {usual}")
    return found


def watts(text: str) -> float:
    """Return the number of "700.00 W"; 0: not stated."""
    number = text.partition(" ")[0]
    return float(number) if number.replace(".", "", 1).isdigit() else 0.0
