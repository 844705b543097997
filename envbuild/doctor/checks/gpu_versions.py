"""All GPUs of the node have the same VBIOS and firmware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..facts.gpus import smi_fault, smi_report
from ..host import Host
from ..model import ADMINISTRATOR, Need, Result, failed, not_run, passed

GROUP = "GPU"
KEYS = ("VBIOS Version", "GSP Firmware Version")


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare the versions of the GPUs."""
    if fault := smi_fault(host):
        yield not_run(fault)
        return
    gpus = smi_report(host).gpus
    if len(gpus) < 2:
        yield not_run("there is one GPU: nothing to compare")
        return
    texts = []
    for key in KEYS:
        values = Counter(gpu.value(key) for gpu in gpus)
        if len(values) > 1:
            usual = values.most_common(1)[0][0]
            other = [f"{gpu.bus} has {gpu.value(key) or 'none'}" for gpu in gpus if gpu.value(key) != usual]
            yield failed(
                f"{key} is {usual or 'none'}, but {', '.join(other)}", ADMINISTRATOR, "install one version on all GPUs"
            )
            return
        usual = values.most_common(1)[0][0]
        if usual:
            texts.append(f"{key} {usual}")
    yield passed(", ".join(texts)) if texts else not_run("nvidia-smi states no version")
