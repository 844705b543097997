"""The kernel's log has no fault of a GPU (XID) or an NVSwitch (SXID). Its size is fixed: old lines are lost."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator

from ..facts.gpus import driver_version
from ..host import Host
from ..model import ADMINISTRATOR, HARDWARE, MINOR, Need, Result, failed, not_run, passed
from ..tools.kernel_log import Event, parse_kernel_log

GROUP = "GPU"
ACTIONS = {
    "reboot": (HARDWARE, "drain the node, then reboot; again: replace the GPU"),
    "reset": (ADMINISTRATOR, "drain the node; nvidia-smi --gpu-reset -i BUS"),
    "nvlink": (HARDWARE, "drain the node; systemctl restart nvidia-fabricmanager; again: replace the GPU or its board"),
    "unknown": (ADMINISTRATOR, "search the number in NVIDIA's catalogue of XIDs"),
    "memory": (
        MINOR,
        "errors of GPU memory: nvidia-smi -q -d ECC,ROW_REMAPPER; a row that waits to be remapped: a reset",
    ),
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
    yield worst_event(parse_kernel_log(text)) or passed(f"none in {len(text.splitlines())} lines of the kernel log")


def worst_event(events: list[Event]) -> Result | None:
    """Return the failure that the most serious events are, or None without one."""
    kinds = {event.action for event in events}
    for kind, (severity, fix) in ACTIONS.items():
        if kind in kinds:
            return failed(describe([event for event in events if event.action == kind]), severity, fix)
    return None


def describe(events: list[Event]) -> str:
    """Return the numbers of events with their GPUs."""
    counts = Counter((event.switch, event.number, event.bus) for event in events)
    names = [
        f"{'SXID' if switch else 'XID'} {number} of {bus}{f' ({count} times)' if count > 1 else ''}"
        for (switch, number, bus), count in counts.most_common(6)
    ]
    return ", ".join(names)


def kernel_log(host: Host) -> tuple[str, str]:
    """Return the kernel's log, and why it cannot be read ("" if it can)."""
    if not host.is_real:
        found = host.read("/dev/kmsg")
        return found.text, found.fault
    try:
        device = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return "", os.strerror(error.errno or 0)
    parts: list[str] = []
    try:
        while len(parts) < 200_000:
            try:
                parts.append(os.read(device, 8192).decode("utf-8", "replace"))
            except OSError as error:
                if error.errno == errno.EPIPE:  # lines were overwritten meanwhile
                    continue
                if error.errno != errno.EAGAIN:
                    return "", os.strerror(error.errno or 0)
                break
    finally:
        os.close(device)
    return "".join(parts), ""
