"""The user may open the device files of the GPUs: a cgroup of version 2 hides them in a way that no setting shows."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..facts.gpus import driver_version, module_gpus
from ..facts.place import is_container
from ..host import Host
from ..model import ADMINISTRATOR, USER, Need, Result, failed, not_run, passed

GROUP = "GPU"
ALWAYS = ("nvidiactl", "nvidia-uvm")


def check(host: Host, need: Need) -> Iterator[Result]:
    """Open each of them."""
    if not driver_version(host):
        yield not_run("the NVIDIA driver is not loaded")
        return
    numbers = [gpu.minor for gpu in module_gpus(host) if gpu.minor.isdigit()]
    names = [*ALWAYS, *(f"nvidia{number}" for number in numbers)]
    faults = {name: open_fault(host, f"/dev/{name}") for name in names}
    wrong = [f"{name}: {fault}" for name, fault in faults.items() if fault]
    if not wrong:
        yield passed(f"{len(names)} device files open")
    elif is_container(host):
        yield failed(
            "; ".join(wrong), USER, "docker run --gpus all; enroot: NVIDIA_VISIBLE_DEVICES=all; srun --gpus-per-node=N"
        )
    else:
        yield failed(
            "; ".join(wrong),
            ADMINISTRATOR,
            "nvidia-modprobe -u -c 0; in a job: srun --gpus-per-node=N, and gres.conf with every device",
        )


def open_fault(host: Host, path: str) -> str:
    """Return why a device file cannot be opened, or ""."""
    try:
        os.close(os.open(host.path(path), os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return os.strerror(error.errno or 0)
    return ""
