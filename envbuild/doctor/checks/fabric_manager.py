"""GPUs behind NVSwitches are registered: without that, CUDA ends with error 802, "system not yet initialized".

GPUs before Hopper do not state it: there, the fabric manager runs where the machine has NVSwitches. A GPU of newer
drivers also states the health of its fabric (nvmlGpuFabricInfoV_t of nvml.h)."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.gpus import NVIDIA, is_divided, pci_devices, pci_driver, resetting, smi_fault, smi_report
from ..facts.kernel_messages import is_booting
from ..facts.place import container_sign, hides_processes, pid_of
from ..host import Host
from ..model import ADMINISTRATOR, HARDWARE, MINOR, Need, Result, failed, not_applicable, not_run, passed
from ..tools.nvidia_smi import Gpu

GROUP = "GPU"
NONE = ("n/a", "not supported", "")
SWITCH_KIND, VFIO = "0680", "vfio-pci"  # class of NVSwitches on the PCI bus; the driver of one of a virtual machine
SWITCHES = "/proc/driver/nvidia-nvswitch/devices"  # of the driver; NVIDIA's driver container starts the manager by it
MANAGER = "nv-fabricmanage"  # the name of the process, of at most 15 characters
BAD = (
    ("Fabric/Health/Summary", "unhealthy"),
    ("Fabric/Health/Bandwidth", "degraded"),
    ("Fabric/Health/Route Unhealthy", "true"),
)
PASSING = (
    ("Fabric/Health/Summary", "limited capacity"),
    ("Fabric/Health/Route Recovery in progress", "true"),
    ("Fabric/Health/Access Timeout Recovery", "true"),
)


def check(host: Host, need: Need) -> Iterator[Result]:
    """Read state and status of the fabric."""
    if fault := smi_fault(host):
        yield not_run(fault)
        return
    gpus = tuple(gpu for gpu in smi_report(host).gpus if not is_divided(gpu))
    if smi_report(host).gpus and not gpus:
        yield not_applicable("the GPUs are divided (MIG), and use no NVLink")
        return
    states = {gpu.bus: (gpu.value("Fabric/State"), gpu.value("Fabric/Status")) for gpu in gpus}
    if all(state.lower() in NONE for state, _ in states.values()):
        yield manager_result(host)
        return
    wrong = [
        f"{bus}: {state or 'unknown'} {status}".strip()
        for bus, (state, status) in states.items()
        if (state, status) != ("Completed", "Success")
    ]
    if wrong:
        service = "nvidia-fabricmanager"
        fix = f"systemctl status {service}; its version must be the driver's; without jobs: systemctl restart {service}"
        if need.imex:  # the fabric manager of an NVL72 runs on its switch trays, and IMEX does not register GPUs
            buses = [bus for bus, state in states.items() if state != ("Completed", "Success")]
            fix = f"the log of the fabric manager (NMX Controller) on the switch trays; {resetting(buses)}"
        starts = is_booting(host) and all(
            state == "In Progress" for state, _ in states.values() if state != "Completed"
        )
        detail = f"not registered by the fabric manager: {grouped(states)}" + ("" if need.imex else runs_text(host))
        yield failed(detail, ADMINISTRATOR, fix, drains=not starts)
    elif sick := unhealthy(gpus, BAD):
        fix = "nvidia-smi nvlink --status; drain the node, then reboot; again: replace the GPU or its board"
        yield failed(f"links of the fabric: {', '.join(sick[:8])}", HARDWARE, fix)
    elif wrong := configuration_faults(gpus):
        fix = "firmware and topology of the board and its switches as the vendor's release notes state; nvidia-smi -q"
        yield failed(f"configuration of the fabric: {', '.join(wrong[:8])}", ADMINISTRATOR, f"{fix} -d FABRIC")
    elif sick := unhealthy(gpus, PASSING):
        yield failed(f"the fabric recovers: {', '.join(sick[:8])}", MINOR, "wait, then: nvidia-smi -q -d FABRIC")
    else:
        yield passed(f"{len(states)} GPUs registered")


def grouped(states: dict[str, tuple[str, str]]) -> str:
    """Return the GPUs that are not registered by their state, each state once."""
    found: dict[str, list[str]] = {}
    for bus, state in states.items():
        if state != ("Completed", "Success"):
            found.setdefault(" ".join(state).strip() or "unknown", []).append(bus)
    return "; ".join(
        f"all {len(buses)} GPUs: {words}" if len(buses) == len(states) > 1 else f"{', '.join(buses[:8])}: {words}"
        for words, buses in found.items()
    )


def runs_text(host: Host) -> str:
    """Return that the fabric manager does not run, where that can be seen."""
    hidden = hides_processes(host) or container_sign(host) or pid_of(host, MANAGER)
    return "" if hidden else "; it does not run"


def unhealthy(gpus: tuple[Gpu, ...], signs: tuple[tuple[str, str], ...]) -> list[str]:
    """Return the GPUs that have a sign, with it."""
    named = [(gpu.bus, key.rpartition("/")[2], gpu.value(key), bad) for gpu in gpus for key, bad in signs]
    return [f"{bus} {name}: {value}" for bus, name, value, bad in named if value.lower() == bad]


def configuration_faults(gpus: tuple[Gpu, ...]) -> list[str]:
    """Return the GPUs whose fabric states a wrong configuration, with its words."""
    stated = {gpu.bus: gpu.value("Fabric/Health/Incorrect Configuration") for gpu in gpus}
    return [f"{bus} {words}" for bus, words in stated.items() if words.lower() not in (*NONE, "none")]


def nvswitches(host: Host) -> list[str]:
    """Return the NVSwitches of the machine."""
    on_bus = [one.slot for one in pci_devices(host) if (one.vendor, one.kind) == (NVIDIA, SWITCH_KIND)]
    return host.names(SWITCHES) or [slot for slot in on_bus if pci_driver(host, slot) != VFIO]


def manager_result(host: Host) -> Result:
    """Judge by the process of the fabric manager, where GPUs state nothing."""
    switches = nvswitches(host)
    if not switches:
        return not_applicable("these GPUs state no fabric, and there is no NVSwitch")
    if pid_of(host, MANAGER):
        return passed(f"the fabric manager runs, for {len(switches)} NVSwitches")
    if hides_processes(host) or container_sign(host):
        return not_run(f"{len(switches)} NVSwitches; whether the fabric manager runs cannot be seen here")
    fix = (
        "systemctl start nvidia-fabricmanager; its version must be the driver's: systemctl status nvidia-fabricmanager"
    )
    return failed(f"{len(switches)} NVSwitches, and the fabric manager does not run", ADMINISTRATOR, fix)
