"""The user may open the device files of the GPUs: a cgroup of version 2 hides them in a way that no setting shows.

In a job Slurm permits those that the job requested alone (ConstrainDevices)."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from ..facts.gpus import driver_version, module_gpus
from ..facts.place import JOB, find_place, is_container, job_id
from ..host import Host
from ..model import ADMINISTRATOR, MINOR, USER, Need, Result, failed, not_run, passed

GROUP = "GPU"
UVM = "nvidia-uvm"
ALWAYS = ("nvidiactl", UVM)
MISSING = os.strerror(errno.ENOENT)
MODPROBE = "/usr/bin/nvidia-modprobe"  # of the driver's packages; setuid root, it loads a module for a user
LOAD = (
    "nvidia-modprobe -u -c 0; for each boot: systemctl edit nvidia-persistenced, and write: [Service] "
    f"ExecStartPre={MODPROBE} -u -c 0"
)
FORBIDDEN = os.strerror(errno.EPERM)  # of a cgroup; of the file's own mode it is EACCES


def check(host: Host, need: Need) -> Iterator[Result]:
    """Open each of them."""
    if not driver_version(host):
        yield not_run("the NVIDIA driver is not loaded")
        return
    numbers = [gpu.minor for gpu in module_gpus(host) if gpu.minor.isdigit()]
    names = [*ALWAYS, *(f"nvidia{number}" for number in numbers)]
    faults = {name: open_fault(host, f"/dev/{name}") for name in names}
    hidden = [name for name in names[len(ALWAYS) :] if faults[name] == FORBIDDEN]
    in_job = bool(job_id(host)) and not is_container(host)
    wrong = [f"{name}: {fault}" for name, fault in faults.items() if fault and not (in_job and name in hidden)]
    if wrong == [f"{UVM}: {MISSING}"] and not is_container(host):
        yield unloaded_uvm(host)
    elif wrong:
        yield failed("; ".join(wrong), *repair(host, need, [name for name, fault in faults.items() if fault]))
    elif in_job and hidden:
        yield job_result(host, need, len(numbers) - len(hidden), len(numbers))
    else:
        yield passed(f"{len(names)} device files open")


def unloaded_uvm(host: Host) -> Result:
    """Judge a module that the first CUDA program after a boot loads, by nvidia-modprobe or by Docker's hook. For a
    container of enroot nothing loads it (NVIDIA/enroot#106)."""
    detail = f"{UVM}: {MISSING}"
    if host.programs.find("enroot"):
        return failed(f"{detail}: nothing loads it for a container of enroot", ADMINISTRATOR, LOAD)
    if is_setuid(host.programs.find("nvidia-modprobe") or str(host.path(MODPROBE))) or host.programs.find("docker"):
        return failed(f"{detail}: the first CUDA program loads it", MINOR, LOAD)
    return failed(f"{detail}, and nvidia-modprobe is not setuid root: no user's program loads it", ADMINISTRATOR, LOAD)


def is_setuid(program: str) -> bool:
    """Return whether a program runs as root for each user."""
    try:
        status = os.stat(program)  # noqa: PTH116
    except OSError:
        return False
    return bool(status.st_mode & stat.S_ISUID) and status.st_uid == 0


def job_result(host: Host, need: Need, count: int, total: int) -> Result:
    """Judge a job that may use `count` of `total` GPUs by what it requested and what the target has."""
    requested = host.environ.get("SLURM_GPUS_ON_NODE", "")
    detail = f"the job may use {count} of {total} GPUs"
    if requested.isdigit() and count < int(requested):
        fix = "gres.conf with the file of every device: AutoDetect=nvml; scontrol reconfigure"
        return failed(f"{detail}, and Slurm has allocated {requested}", ADMINISTRATOR, fix)
    if need.nvidia and count < need.gpus:
        fix = f"srun --gpus-per-node={need.gpus} --exclusive"
        return failed(f"{detail}, and {need.source} has {need.gpus}", USER, fix)
    return passed(detail)


def repair(host: Host, need: Need, names: list[str]) -> tuple[str, str]:
    """Return who can make the device files usable, and the commands, by the place."""
    place, count = find_place(host)[0], need.gpus if need.nvidia else "N"
    if place == JOB:
        return USER, f"srun --gpus-per-node={count}; for enroot: export NVIDIA_VISIBLE_DEVICES=all"
    if is_container(host):
        return USER, "docker run --gpus all"
    if any(host.has(f"/dev/{name}") for name in names):
        return (
            ADMINISTRATOR,
            "chmod 0666 /dev/nvidia*; it returns: NVreg_DeviceFileMode in /etc/modprobe.d; ls -l /dev/nvidia*",
        )
    numbers = [name[len("nvidia") :] for name in names if name not in ALWAYS]
    makes = " ".join(["nvidia-modprobe -u", *(f"-c {number}" for number in numbers or ["0"])])
    return ADMINISTRATOR, f"{makes}; ls -l /dev/nvidia*"


def open_fault(host: Host, path: str) -> str:
    """Return why a device file cannot be opened, or ""."""
    if fault := host.open_fault(path):
        return fault
    try:
        status = host.path(path).stat()
    except OSError as error:
        return os.strerror(error.errno or 0)
    return closed(status.st_mode, status.st_uid, status.st_gid) if stat.S_ISCHR(status.st_mode) else ""


def closed(mode: int, owner: int, group: int) -> str:
    """Return why no user but root may open a device file, or "": root itself may open each."""
    everyone, members = mode & 0o006 == 0o006, bool(group) and mode & 0o060 == 0o060
    return "" if everyone or members or owner else f"mode {stat.S_IMODE(mode):04o}, so that users may not open it"
