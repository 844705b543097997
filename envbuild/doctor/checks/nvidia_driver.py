"""The NVIDIA driver is loaded, not older than the target's, of the version of its libraries, and answers nvidia-smi."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..facts.cpu import is_older
from ..facts.gpus import (
    INTERRUPTS,
    POWER,
    SMI,
    WITHOUT_GPUS,
    driver_version,
    pci_driver,
    pci_gpus,
    smi_failure,
    smi_report,
    wants_smi,
    without_gpus,
)
from ..facts.node_kind import is_of_target
from ..facts.packages import package_manager
from ..facts.place import COMPUTE, JOB, find_place, is_container, job_id
from ..host import Host
from ..model import ADMINISTRATOR, HARDWARE, MINOR, USER, Need, Result, failed, not_run, passed
from .gpu_count import MISSING, VFIO

GROUP = "GPU"
MISMATCH = 18  # exit code of nvidia-smi for NVML_ERROR_LIB_RM_VERSION_MISMATCH
LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib")
MODULES = (  # in the order in which they can be unloaded: each uses those after it
    "nvidia_drm", "nvidia_modeset", "nvidia_fs", "gdrdrv", "nvidia_peermem", "nvidia_uvm", "nvidia",
)  # fmt: skip
NVML = re.compile(r"libnvidia-ml\.so\.(\d{3}\.\d+(?:\.\d+)?)$")


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare the version of the kernel module with the target's and the library's."""
    version, devices = driver_version(host), pci_gpus(host)
    if not version:
        if not devices and not need.nvidia:
            yield not_run("there is no NVIDIA GPU on the PCI bus")
        elif not devices:
            detail = f"no NVIDIA GPU on the PCI bus, and {need.source} has {need.gpus}"
            if find_place(host)[0] == COMPUTE and not job_id(host):
                yield failed(detail, HARDWARE, f"lspci -d 10de:; {MISSING}", drains=is_of_target(host, need))
            else:
                yield failed(detail, USER, "use a node of that target")
        else:
            yield unloaded_result(host, [device.slot for device in devices])
        return
    library = library_version(host)
    if (library and library != version) or mismatch(host):
        detail = f"the module is {version}, its libraries are {library or 'of another version'}"
        yield failed(detail, ADMINISTRATOR, reloading(host))
    elif need.driver and is_older(version, need.driver):
        choose = f"choose versions for this one: envbuild check torch driver={version}"
        fix = f"install driver {need.driver} or newer, or {choose}"
        yield failed(f"driver {version} is older than {need.driver} of {need.source}", ADMINISTRATOR, fix, drains=False)
    elif is_container(host) and not library and not host.programs.find("nvidia-smi"):
        hook = "export NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility, for enroot's 98-nvidia.sh"
        fix = hook if find_place(host)[0] == JOB else "docker run --gpus all"
        yield failed("the driver's libraries are not in this container", USER, fix)
    elif without_gpus(host):
        yield passed(f"driver {version}; {WITHOUT_GPUS}")
    elif fault := smi_failure(host):
        yield smi_result(fault, is_container(host), host.output(*SMI).code)
    else:
        yield passed(f"driver {version}" + (f", needed: {need.driver}" if need.driver else ""))


def unloaded_result(host: Host, slots: list[str]) -> Result:
    """Return the failure of GPUs without their driver: another one has them, or it is not loaded."""
    drivers = {pci_driver(host, slot) for slot in slots}
    if host.has("/sys/module/nouveau") or "nouveau" in drivers:
        image = {"apt-get": "update-initramfs -u"}.get(package_manager(host), "dracut -f")
        fix = f"as root: echo blacklist nouveau > /etc/modprobe.d/blacklist-nouveau.conf; {image}; reboot"
        return failed(f"nouveau has the {len(slots)} NVIDIA GPUs, so that their driver cannot", ADMINISTRATOR, fix)
    if drivers == {VFIO}:
        fix = f"none, if virtual machines have them; else: driverctl unset-override {slots[0]}"
        return failed(f"{VFIO} has the {len(slots)} NVIDIA GPUs, for virtual machines", MINOR, fix)
    fix = (
        "modprobe nvidia; not found: dkms status, for kernel $(uname -r); Key was rejected by service: mokutil "
        "--sb-state; another error: dmesg | grep -i nvrm"
    )
    return failed(f"{len(slots)} NVIDIA GPUs on the PCI bus, and the driver is not loaded", ADMINISTRATOR, fix)


def reloading(host: Host) -> str:
    """Return the commands that load the module again: what uses it must end first, and be unloaded before it."""
    loaded = [name for name in MODULES if host.has(f"/sys/module/{name}")]
    stop = "systemctl stop nvidia-persistenced nvidia-fabricmanager nvidia-imex nvidia-dcgm"
    names = loaded or ["nvidia"]
    load = f"modprobe -a {' '.join(reversed(names))}"
    return f"reboot; or, without jobs: {stop}; rmmod {' '.join(names)}; {load}; then start them"


def smi_result(fault: str, container: bool, code: int) -> Result:
    """Return the failure of nvidia-smi beside a driver that is loaded: a GPU is lost or hangs, the driver is
    initialised again for each program, or a container has lost its devices."""
    if container:
        fix = "start the container again: a change of its cgroup takes its GPUs away; then: envbuild doctor on the node"
        return failed(f"the driver is loaded, and {fault}", USER, fix)
    if code in (POWER, INTERRUPTS):
        fix = "drain the node; dmesg | grep -i -e nvrm -e xid; power cables and seat of the GPU"
        return failed(fault, HARDWARE, fix)
    fix = "dmesg | grep -i -e nvrm -e xid; systemctl enable --now nvidia-persistenced; a GPU that is lost: reboot"
    return failed(f"the driver is loaded, and {fault}", ADMINISTRATOR, fix)


def mismatch(host: Host) -> bool:
    """Return whether nvidia-smi states that module and library differ."""
    if not wants_smi(host):
        return False
    output = host.output(*SMI)
    words = output.text + output.errors
    return output.code == MISMATCH or "Driver/library version mismatch" in words


def library_version(host: Host) -> str:
    """Return the version of libnvidia-ml.so.1, or of nvidia-smi's answer; "" if neither is known."""
    for folder in LIBRARIES:
        if found := NVML.search(host.link_name(f"{folder}/libnvidia-ml.so.1")):
            return found[1]
    return smi_report(host).driver
