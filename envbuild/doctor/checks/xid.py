"""The kernel's log has no fault of a GPU (XID) or an NVSwitch (SXID). Its size is fixed: old lines are lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..facts.gpus import driver_version, smi_report
from ..facts.kernel_messages import kernel_log, uptime
from ..host import Host
from ..model import ADMINISTRATOR, HARDWARE, MINOR, Need, Result, failed, not_run, passed
from ..tools.kernel_log import RECOVERY, Event, parse_kernel_log

GROUP = "GPU"
ACTIONS = {
    "reboot": (HARDWARE, "drain the node, then reboot; again: replace the GPU"),
    "reset": (
        ADMINISTRATOR,
        "drain the node, then reboot. nvidia-smi --gpu-reset -i {buses} is enough for the GPU; "
        "the line of the log remains",
    ),
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
READERS = "a user of the groups adm or systemd-journal, or root, may read it: journalctl -k | grep -e Xid -e SXid"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Judge the worst event."""
    if not driver_version(host):
        yield not_run("the NVIDIA driver is not loaded")
        return
    text, fault = kernel_log(host)
    if fault:
        yield not_run(f"kernel log: {fault}", READERS)
        return
    events, lines = parse_kernel_log(text), len(text.splitlines())
    left = [event for event in events if not is_recovered(event, events, host)]
    if failure := worst_event(left, uptime(host)):
        yield failure
    elif events:
        yield passed(f"{describe(events)}; no GPU of these needs a recovery now")
    else:
        yield passed(f"none in {lines} lines of the kernel log")


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
    return event.action != "unknown" and [gpu.value("GPU Recovery Action") for gpu in named] == ["None"]


def worst_event(events: list[Event], seconds: float = 0.0) -> Result | None:
    """Return the failure that the most serious events are, or None without one. `seconds`: how long the machine runs;
    the age of the last event follows from it."""
    kinds = {event.action for event in events}
    for kind, (severity, fix) in ACTIONS.items():
        if kind in kinds:
            chosen = [event for event in events if event.action == kind]
            last = chosen[-1].after
            age = f", the last {age_text(seconds - last)} ago" if 0 <= last < seconds else ""
            words = f": {chosen[-1].text[:80]}" if kind == "unknown" and chosen[-1].text else ""
            buses = dict.fromkeys(one.bus if "." in one.bus else f"{one.bus}.0" for one in chosen)
            others = [event for event in events if event.action not in (kind, "application", "recovered")]
            also = f"; also {describe(others)}" if others else ""
            return failed(describe(chosen) + also + age + words, severity, fix.format(buses=",".join(buses)))
    return None


def age_text(seconds: float) -> str:
    """Return a time in its largest unit."""
    units = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))
    name, size = next((unit for unit in units if seconds >= 2 * unit[1]), units[-1])
    number = max(int(seconds / size), 1)
    return f"{number} {name}{'s' if number != 1 else ''}"


def describe(events: list[Event]) -> str:
    """Return the numbers of events with their GPUs."""
    counts = Counter((event.switch, event.number, event.bus, event.node) for event in events)
    names = [
        f"{'SXID' if switch else 'XID'} {number} of {bus}{f' of {node}' if node else ''}"
        f"{f' ({count} times)' if count > 1 else ''}"
        for (switch, number, bus, node), count in counts.most_common(6)
    ]
    return ", ".join(names)
