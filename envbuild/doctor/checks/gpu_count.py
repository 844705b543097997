"""The node has the GPUs of the target: number and model, none excluded or lost, all of one model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..facts.gpus import (
    driver_version,
    models,
    module_gpus,
    pci_driver,
    pci_gpus,
    resetting,
    smi_report,
    uninitialised_gpus,
    usable_gpus,
)
from ..facts.node_kind import configured_gpus, is_of_target, same_model
from ..facts.place import COMPUTE, CONTAINER, JOB, container_sign, find_place, job_id
from ..host import Host
from ..model import ADMINISTRATOR, HARDWARE, MINOR, USER, Need, Result, failed, not_run, passed
from ..tools.nvidia_smi import RESET, SmiReport

GROUP = "GPU"
VFIO = "vfio-pci"  # the driver of a device that a virtual machine has
MISSING = "drain the node; switch its power off and on; again: reseat or replace the GPU"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare the PCI bus, the kernel module and the target."""
    on_bus, found, names = len(pci_gpus(host)), len(module_gpus(host)), [name for name in models(host) if name]
    count = max(found, len(names))
    if not driver_version(host) and not count:
        yield not_run("the NVIDIA driver is not loaded")
        return
    if failure := silent_gpus(smi_report(host)):
        yield failure
        return
    fallen = fallen_gpus(host)
    excluded = [gpu.bus for gpu in module_gpus(host) if gpu.excluded.lower() == "yes"]
    lacking, kinds = uninitialised_gpus(host), Counter(names)
    listed = ", ".join(f"{number}x {name}" for name, number in kinds.most_common())
    if excluded:
        yield failed(
            f"excluded by the driver: {', '.join(excluded)}",
            MINOR if left_out(host) else HARDWARE,
            "on purpose: leave it so. To use it again: grep -r NVreg_ExcludedGpus /etc/modprobe.d, remove it, reboot. "
            "Broken: drain the node; replace the GPU",
        )
    elif lacking:
        fix = "dmesg | grep -i RmInitAdapter; drain the node, then reboot; again: reseat or replace the GPU"
        yield failed(f"in the driver, and not initialised: {', '.join(lacking)}", HARDWARE, fix)
    elif len(kinds) > 1:
        fix = "use nodes of one model: srun --constraint=…, or a line for each model in gres.conf"
        yield failed(f"GPUs of several models: {listed}", USER, fix)
    elif fallen and not container_sign(host):  # a container sees the bus, and its own GPUs in the driver
        detail = f"{on_bus} GPUs on the PCI bus, {found} in the driver: without {', '.join(fallen)}"
        fix = f"dmesg | grep -i -e nvrm -e xid; drain the node, then reboot; again: {MISSING.partition('; ')[2]}"
        yield failed(detail, HARDWARE, fix)
    elif not count:
        yield not_run("the driver lists no GPU")
    elif need.nvidia and count != need.gpus:
        place, job = find_place(host)[0], job_id(host)
        detail = f"{count} GPUs, and {need.source} has {need.gpus}"
        if place == COMPUTE and not job and count < need.gpus:  # all of the node's are seen
            detail += f"; on the PCI bus: {on_bus}"
            yield failed(detail, HARDWARE, MISSING, drains=is_of_target(host, need))
        elif place in (COMPUTE, JOB) and count < need.gpus:
            yield failed(detail, USER, f"srun --gpus-per-node={need.gpus} --exclusive")
        elif place == CONTAINER and count < need.gpus:
            yield failed(detail, USER, f"docker run --gpus all; or use a node of {need.source}")
        else:
            yield failed(detail, USER, "use a node of that target")
    elif need.nvidia and names and not same_model(names[0], need.gpu):
        yield failed(f"GPUs are {names[0]}, and {need.source} has {need.gpu}", USER, "use a node of that target")
    elif len(names) != count:
        yield not_run(f"the model of {count - len(names)} of {count} GPUs is not known")
    else:
        yield passed(listed)


def left_out(host: Host) -> bool:
    """Return whether Slurm has no more GPUs configured than the driver provides for jobs."""
    configured = configured_gpus(host)
    return configured is not None and 0 < configured <= len(usable_gpus(host))


def fallen_gpus(host: Host) -> list[str]:
    """Return the GPUs of the bus that the driver lacks, of the models that it drives: another one, for a screen, may be
    too old for it. Those that virtual machines have are left out."""
    here = {gpu.bus.lower() for gpu in module_gpus(host)}
    models = {device.device for device in pci_gpus(host) if device.slot.lower() in here}
    lacking = [one.slot for one in pci_gpus(host) if one.device in models and one.slot.lower() not in here]
    return [slot for slot in lacking if pci_driver(host, slot) != VFIO]


def silent_gpus(report: SmiReport) -> Result | None:
    """Return the failure of GPUs that do not answer the driver, or None."""
    silent = report.silent if report.complete else ()
    broken = [f"{gpu.bus} ({gpu.fault})" for gpu in silent if gpu.fault != RESET]
    if broken:
        fix = "drain the node, then reboot; again: reseat or replace the GPU"
        return failed(f"lost, does not answer the driver: {', '.join(broken)}", HARDWARE, fix)
    buses = [gpu.bus for gpu in silent]
    return failed(f"requires a reset: {', '.join(buses)}", ADMINISTRATOR, resetting(buses)) if buses else None
