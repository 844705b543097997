"""The limits of the cgroup: memory and processes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..facts.place import CONTAINER, find_place, job_id
from ..facts.storage import amount
from ..host import Host
from ..model import ADMINISTRATOR, MINOR, USER, Need, Result, failed, not_run, passed

GROUP = "limits"
FOLDER = "/sys/fs/cgroup"
PROCESSES = 1024  # for each rank: threads of data loaders, NCCL, OpenMP


def check(host: Host, need: Need) -> Iterator[Result]:
    """Read the limits of cgroup v2, of this cgroup and those above it."""
    path = next((line[3:] for line in host.text("/proc/self/cgroup").splitlines() if line.startswith("0::")), "")
    if not path or not host.has(f"{FOLDER}/cgroup.controllers"):
        yield not_run("this is not a machine with cgroup v2 alone")
        return
    memory = smallest(host, path, "memory.max")
    processes = smallest(host, path, "pids.max")
    parts = [f"memory {amount(memory)}" if memory else "memory unlimited"]
    parts.append(f"{processes} processes" if processes else "processes unlimited")
    wanted = PROCESSES * max(need.gpus, 1)
    if processes and processes < wanted and need.gpus:
        detail = f"{processes} processes at most, and {need.gpus} ranks use up to {wanted}"
        place, job = find_place(host)[0], job_id(host)
        if place == CONTAINER:
            yield failed(detail, USER, "docker run --pids-limit=-1")
        elif job:
            yield failed(
                detail, ADMINISTRATOR, "systemctl edit slurmd: [Service] TasksMax=infinity; then restart slurmd"
            )
        else:  # of a login or of a health check; jobs have their own
            yield failed(f"{detail}; jobs may have another limit", MINOR, "srun envbuild doctor: the limit of a job")
    else:
        yield passed(", ".join(parts))


def smallest(host: Host, path: str, name: str) -> int:
    """Return the smallest limit on the way from a cgroup to the root; 0: none."""
    found = []
    parts = [part for part in path.split("/") if part and part != ".."]
    for count in range(len(parts) + 1):
        text = host.text("/".join([FOLDER, *parts[:count], name]))
        if re.fullmatch(r"\d+", text):
            found.append(int(text))
    return min(found) if found else 0
