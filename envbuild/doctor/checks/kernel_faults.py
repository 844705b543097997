"""The kernel's log names no hardware that failed, beside the events of GPUs (XID), which the check xid judges.

A line remains until the machine starts again: what recovered since is minor. Hardware drains the node where the device
itself is named and has not recovered."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..facts.gpus import pci_gpus, smi_report
from ..facts.kernel_messages import READERS, kernel_log, log_span
from ..facts.network import rdma_ports
from ..host import Host
from ..model import HARDWARE, MINOR, Need, Result, failed, not_run, passed
from ..tools.kernel_log import BEFORE

GROUP = "machine"
SLOT = r"(?P<slot>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
FATAL = "AER"
# NVIDIA/open-gpu-kernel-modules (nv.c, osinit.c); drivers/net/ethernet/mellanox/mlx5/core/health.c; drivers/pci/pcie/
# aer.c; arch/x86/kernel/cpu/mce; drivers/edac/edac_mc.c; drivers/nvme/host/pci.c; fs/ext4/super.c; kernel/watchdog.c
SIGNS = tuple(
    (re.compile(BEFORE + f"(?P<words>{pattern}.*)"), severity, kind)
    for pattern, severity, kind in (
        (
            rf"NVRM: GPU {SLOT}: (?:RmInitAdapter failed|rm_init_adapter failed|GPU has fallen off the bus)",
            HARDWARE,
            "GPU",
        ),
        (rf"mlx5_core {SLOT}: .*health compromised", HARDWARE, "mlx5"),
        (rf"pcieport {SLOT}: AER: .*Uncorrect\w+ \(Fatal\)", HARDWARE, FATAL),
        (r"mce: \[Hardware Error\]: Machine check", MINOR, ""),
        (r"EDAC MC\d+: \d+ UE ", MINOR, ""),
        (r"nvme nvme\d+: controller is down", MINOR, ""),
        (r"(?:EXT4-fs|XFS)\b.*(?:Remounting filesystem read-only|Corruption .*detected)", MINOR, ""),
        (r"watchdog: BUG: soft lockup", MINOR, ""),
    )
)
RECOVERED = {
    "mlx5": re.compile(rf"mlx5_core {SLOT}: .*(?:health recovery succeeded|health recovery flow succeeded)"),
    FATAL: re.compile(r"AER: device recovery successful"),
}
FIX = "dmesg | grep -F '{word}'; drain the node, then reboot; again: replace the device"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Judge the last line of each kind, the worst first."""
    text, fault = kernel_log(host)
    if fault:
        yield not_run(f"/dev/kmsg, the log of the kernel: {fault}", READERS)
        return
    lines = text.split("\n")
    found = [result for result in (judge(host, lines, number) for number in range(len(lines))) if result]
    worst = [result for result in found if result.severity == HARDWARE] or found
    if worst:
        more = f" ({len(worst)} such lines)" if len(worst) > 1 else ""
        yield failed(worst[-1].detail + more, worst[-1].severity, worst[-1].fix)
    else:
        yield passed(f"no hardware that failed in the kernel's log {log_span(host, text)}")


def judge(host: Host, lines: list[str], number: int) -> Result | None:
    """Return the failure that a line is, or None."""
    for pattern, severity, kind in SIGNS:
        if match := pattern.search(lines[number]):
            slot = match.groupdict().get("slot") or ""
            if severity == HARDWARE and has_recovered(host, kind, slot, lines[number + 1 :]):
                severity = MINOR
            if kind == FATAL:  # the port, and at the end of the line the device behind it
                slots = re.findall(SLOT.replace("?P<slot>", ""), match["words"])
                slot = slots[-1]
                severity = severity if set(slots) & needed_slots(host) else MINOR
            word = slot or match["words"].partition(":")[0]
            fix = (
                FIX.format(word=word)
                if severity == HARDWARE
                else f"dmesg | grep -F '{word}'; if it returns: the device"
            )
            return failed(match["words"][:160], severity, fix)
    return None


def has_recovered(host: Host, kind: str, slot: str, later: list[str]) -> bool:
    """Return whether a device works again, by a later line of its driver or by nvidia-smi."""
    if kind == "GPU":
        return any(gpu.bus.lower().endswith(slot) for gpu in smi_report(host).gpus)
    if kind == "mlx5" and has_active_port(host, slot):
        return True
    marks = (match for match in map(RECOVERED[kind].search, later) if match)
    return any(match.groupdict().get("slot") in (None, slot) for match in marks)


def has_active_port(host: Host, slot: str) -> bool:
    """Return whether a port of an adapter is active: the kernel reads its state from the firmware, which so answers."""
    devices = host.names(f"/sys/bus/pci/devices/{slot}/infiniband")
    return any(port.device in devices and port.active for port in rdma_ports(host))


def needed_slots(host: Host) -> set[str]:
    """Return the places on the PCI bus of GPUs and RDMA devices, and of the ports above them: jobs need these."""
    slots = {gpu.slot for gpu in pci_gpus(host)}
    for device in {port.device for port in rdma_ports(host)}:
        slots.add(host.link_name(f"/sys/class/infiniband/{device}/device"))
    targets = [host.link_text(f"/sys/bus/pci/devices/{slot}") for slot in slots]
    return slots.union(*(re.findall(SLOT.replace("?P<slot>", ""), target) for target in targets))
