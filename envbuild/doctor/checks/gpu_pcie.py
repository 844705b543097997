"""Each GPU has its full PCIe width, and under load its generation; nothing slows its clock down."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.gpus import smi_fault, smi_report
from ..host import Host
from ..model import ADMINISTRATOR, HARDWARE, Need, Result, failed, not_run, passed

GROUP = "GPU"
WIDTH = "PCI/GPU Link Info/Link Width"
SLOW = (
    "Clocks Event Reasons/HW Slowdown", "Clocks Throttle Reasons/HW Slowdown",  # newer and older name
    "Clocks Event Reasons/HW Slowdown/HW Thermal Slowdown", "Clocks Event Reasons/HW Slowdown/HW Power Brake Slowdown",
)  # fmt: skip


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare the width with the largest one. The generation of an idle GPU is low, so it is not judged."""
    if fault := smi_fault(host):
        yield not_run(fault)
        return
    gpus = smi_report(host).gpus
    pairs = [(gpu.bus, gpu.value(f"{WIDTH}/Current"), gpu.value(f"{WIDTH}/Max")) for gpu in gpus]
    narrow = [f"{bus}: {now} of {most}" for bus, now, most in pairs if now and most and now != most]
    slow = [gpu.bus for gpu in gpus if any(gpu.value(key).lower() == "active" for key in SLOW)]
    if narrow:
        yield failed(f"PCIe width: {', '.join(narrow)}", HARDWARE, "drain the node; reseat the GPU or its riser")
    elif slow:
        yield failed(
            f"the hardware slows the clock down: {', '.join(slow)}",
            ADMINISTRATOR,
            "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
        )
    elif not all(now and most for _, now, most in pairs):
        yield not_run("nvidia-smi does not state the PCIe width")
    else:
        yield passed(f"width {pairs[0][1]}" if pairs else "no GPU")
