"""The kernel's log has no fault of a GPU (XID) or an NVSwitch (SXID). Its size is fixed: old lines are lost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ..facts.gpus import driver_version, resetting, smi_report
from ..facts.kernel_messages import READERS, age_text, kernel_log, log_span, uptime
from ..host import Host
from ..model import ADMINISTRATOR, HARDWARE, MINOR, Need, Result, failed, not_run, passed
from ..tools.kernel_log import RECOVERY, Event, current_events
from ..tools.nvidia_smi import Gpu
from .gpu_memory_errors import uncorrected
from .gpu_settings import RESET

GROUP = "GPU"
ACTIONS = {
    "reboot": (HARDWARE, "drain the node, then reboot; again: replace the GPU"),
    "reset": (
        ADMINISTRATOR,
        "{reset}; after a reset alone, for this check: echo 'envbuild-doctor: reset {buses}' > /dev/kmsg",
    ),
    "power": (HARDWARE, "drain the node; the power cables of the GPU and the power supplies: ipmitool sdr"),
    "drain": (
        ADMINISTRATOR,
        "drain the node; when its jobs with several GPUs have ended: nvidia-smi -q | grep -i 'recovery action'",
    ),
    "nvlink": (
        HARDWARE,
        "drain the node, then reboot (the line of the log remains until then); again: replace the GPU or its board",
    ),
    "unknown": (MINOR, "search the number in NVIDIA's catalogue of XIDs: docs.nvidia.com/deploy/xid-errors"),
    "memory": (
        MINOR,
        "errors of GPU memory: nvidia-smi -q -d ECC,ROW_REMAPPER; a row that waits to be remapped: a reset",
    ),
    "link": (MINOR, "the link works; errors that grow: nvidia-smi nvlink -e"),
    "application": (MINOR, "a program's fault is the usual cause: read its log"),
}
QUIET = ("memory", "application")  # their numbers state enough
ECC = (48, 95)  # uncorrected errors of memory, which the volatile counters have until the driver starts the GPU again
PROCESS = re.compile(r"^pid=[^,]*,? *(?:name=[^,]*,? *)?")  # of whom it was, before the words of an event


def check(host: Host, need: Need) -> Iterator[Result]:
    """Judge the worst event."""
    if not driver_version(host):
        yield not_run("the NVIDIA driver is not loaded")
        return
    text, fault = kernel_log(host)
    if fault:
        yield not_run(f"/dev/kmsg, the log of the kernel: {fault}", READERS)
        return
    events, reset = current_events(text)
    left = [event for event in events if not is_recovered(event, events, host)]
    if failure := worst_event(left, uptime(host)):
        yield failure
    elif events:
        yield passed(f"{describe(events)}; no GPU of these needs a recovery now")
    elif reset:
        yield passed(f"{describe(reset)}, before a reset or a new start of the driver")
    else:
        yield passed(f"no event of a GPU in the kernel's log {log_span(host, text)}")


def is_recovered(event: Event, events: list[Event], host: Host) -> bool:
    """Return whether a GPU needs no recovery any more, by a later line of the driver, or by nvidia-smi. A line remains
    in the log until the machine starts again, also after a reset."""
    if event.switch or event.action not in ("reboot", "reset", "drain", "nvlink", "unknown", "recovered"):
        return False
    later = events[next(at for at, one in enumerate(events) if one is event) :]
    advice = [one.action for one in later if one.bus == event.bus and one.number == RECOVERY]
    if advice:
        return advice[-1] == "recovered"
    named = [gpu for gpu in smi_report(host).gpus if event.bus in gpu.bus.lower()]
    if len(named) != 1 or event.action == "unknown":
        return False
    action = named[0].value("GPU Recovery Action")  # of drivers since 560
    return action == "None" or (not action and event.number in ECC and was_restarted(named[0]))


def was_restarted(gpu: Gpu) -> bool:
    """Return whether the driver has started a GPU again since an uncorrected error: in persistence mode its volatile
    counters last until then (nvmlEccCounterType_t of nvml.h)."""
    is_open = gpu.value("Persistence Mode") == "Enabled" and gpu.value(RESET[0]) == "No" == gpu.value(RESET[1])
    return is_open and uncorrected(gpu) == 0


def worst_event(events: list[Event], seconds: float = 0.0) -> Result | None:
    """Return the failure that the most serious events are, or None without one. `seconds`: how long the machine runs;
    the age of the last event follows from it."""
    kinds = {event.action for event in events}
    for kind, (severity, fix) in ACTIONS.items():
        if kind in kinds:
            chosen = [event for event in events if event.action == kind]
            last = chosen[-1].after
            latest = "the last " if len(chosen) > 1 else ""
            age = f", {latest}{age_text(seconds - last)} ago" if 0 <= last < seconds else ""
            text = PROCESS.sub("", chosen[-1].text)[:80].rstrip(".") if kind not in QUIET else ""
            words = f": {text}" if text else ""
            buses = dict.fromkeys(one.bus if "." in one.bus else f"{one.bus}.0" for one in chosen)
            others = [event for event in events if event.action not in (kind, "application", "recovered")]
            also = f"; also {describe(others)}" if others else ""
            fix = fix.format(buses=",".join(buses), reset=resetting(buses))
            return failed(describe(chosen) + age + words + also, severity, fix)
    return None


def describe(events: list[Event]) -> str:
    """Return the numbers of events with their GPUs."""
    counts = Counter((event.switch, event.number, event.bus, event.node) for event in events)
    names = [
        f"{'SXID' if switch else 'XID'} {number} of {bus}{f' of {node}' if node else ''}"
        f"{f' ({count} times)' if count > 1 else ''}"
        for (switch, number, bus, node), count in counts.most_common(6)
    ]
    return ", ".join(names)
