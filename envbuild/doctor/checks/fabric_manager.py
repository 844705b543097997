"""GPUs behind NVSwitches are registered: without that, CUDA ends with error 802, "system not yet initialized"."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.gpus import smi_fault, smi_report
from ..host import Host
from ..model import ADMINISTRATOR, Need, Result, failed, not_run, passed

GROUP = "GPU"
NONE = ("n/a", "not supported", "")


def check(host: Host, need: Need) -> Iterator[Result]:
    """Read state and status of the fabric."""
    if fault := smi_fault(host):
        yield not_run(fault)
        return
    gpus = smi_report(host).gpus
    states = {gpu.bus: (gpu.value("Fabric/State"), gpu.value("Fabric/Status")) for gpu in gpus}
    if all(state.lower() in NONE for state, _ in states.values()):
        yield not_run("these GPUs have no NVSwitch")
        return
    wrong = [
        f"{bus}: {state or 'unknown'} {status}".strip()
        for bus, (state, status) in states.items()
        if (state, status) != ("Completed", "Success")
    ]
    if wrong:
        service = "nvidia-imex" if need.imex else "nvidia-fabricmanager"
        fix = f"systemctl restart {service}; its version must be the driver's: systemctl status {service}"
        yield failed(f"not registered: {', '.join(wrong[:8])}", ADMINISTRATOR, fix)
    else:
        yield passed(f"{len(states)} GPUs registered")
