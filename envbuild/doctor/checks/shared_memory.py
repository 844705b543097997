"""/dev/shm is large enough: ranks of one node exchange data through it. A job may fill it, with its data set."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.place import CONTAINER, find_place
from ..facts.storage import binary_amount, file_system
from ..host import Host
from ..model import ADMINISTRATOR, MINOR, USER, Need, Result, failed, not_run, passed

GROUP = "limits"
PER_RANK = 1 << 30  # a published two-node run of eight ranks has 8 GiB
DOCKER = 64 << 20  # Docker's own size


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare its size with 1 GiB for each GPU of the target."""
    found = file_system(host, "/dev/shm") if host.is_real else None
    if found is None or (found.kind and found.kind != "tmpfs"):
        yield not_run("/dev/shm is not a tmpfs" if host.is_real else "only the running system states it")
        return
    wanted = max(need.gpus, 1) * PER_RANK
    container = find_place(host)[0] == CONTAINER
    if found.size < wanted and (need.gpus or found.size <= DOCKER):
        fix = "docker run --ipc=host, or --shm-size=8g" if container else "mount -o remount,size=50% /dev/shm"
        ranks = f"{need.gpus} ranks need" if need.gpus > 1 else "a rank needs"
        detail = f"{binary_amount(found.size)}, and {ranks} {binary_amount(wanted)}"
        # what a rank needs is a rule of thumb: it drains no node
        yield failed(detail, USER if container else ADMINISTRATOR, fix, drains=False)
    elif found.free < found.size // 10:
        fix = "files that no process has open, of users without a job: fuser -v /dev/shm/*; squeue -w $(hostname -s)"
        yield failed(f"{binary_amount(found.free)} of {binary_amount(found.size)} are free", MINOR, fix)
    else:
        yield passed(binary_amount(found.size))
