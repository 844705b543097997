"""All GPUs of the node have the same VBIOS and firmware. A GPU that was replaced may have another one, and works."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..facts.gpus import smi_fault, smi_report
from ..host import Host
from ..model import MINOR, Need, Result, failed, not_applicable, not_run, passed

GROUP = "GPU"
KEYS = ("VBIOS Version", "GSP Firmware Version")
UPDATES = "one version on all: that of the vendor's update for the machine (NVIDIA HGX: nvfwupd show_version)"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare the versions of the GPUs."""
    if fault := smi_fault(host):
        yield not_run(fault)
        return
    gpus = smi_report(host).gpus
    if len(gpus) < 2:
        yield not_applicable("there is one GPU: nothing to compare")
        return
    texts = []
    for key in KEYS:
        stated = {gpu.bus: gpu.value(key) for gpu in gpus if gpu.value(key)}
        usual = Counter(stated.values()).most_common(1)[0][0] if stated else ""
        other = [f"{bus} has {value}" for bus, value in stated.items() if value != usual]
        if other:
            yield failed(f"{key} is {usual}, but {', '.join(other)}", MINOR, UPDATES)
            return
        if usual:
            texts.append(f"{key} {usual}")
    yield passed(", ".join(texts)) if texts else not_run("nvidia-smi states no version")
