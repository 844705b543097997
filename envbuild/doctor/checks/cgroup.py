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
UNLIMITED = 1 << 62  # of version 1: the largest number of pages
PROCESSES = 1024  # for each rank: threads of data loaders, NCCL, OpenMP


def check(host: Host, need: Need) -> Iterator[Result]:
    """Read the limits of this cgroup and of those above it."""
    lines = host.text("/proc/self/cgroup").splitlines()
    if host.has(f"{FOLDER}/cgroup.controllers"):
        path = next((line[3:] for line in lines if line.startswith("0::")), "")
        memory, processes = smallest(host, FOLDER, path, "memory.max"), smallest(host, FOLDER, path, "pids.max")
    else:  # version 1, or both: each controller has folders of its own (cgroups(7))
        paths = {name: line.split(":", 2)[2] for line in lines for name in line.split(":")[1].split(",")}
        memory = smallest(host, f"{FOLDER}/memory", paths.get("memory", ""), "memory.limit_in_bytes")
        processes = smallest(host, f"{FOLDER}/pids", paths.get("pids", ""), "pids.max")
        path = paths.get("memory", "")
        memory = memory if memory < UNLIMITED else 0
    if not path:
        yield not_run("/proc/self/cgroup names no cgroup of this process")
        return
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


def smallest(host: Host, folder: str, path: str, name: str) -> int:
    """Return the smallest limit on the way from a cgroup to the root; 0: none."""
    found = []
    parts = [part for part in path.split("/") if part and part != ".."]
    for count in range(len(parts) + 1):
        text = host.text("/".join([folder, *parts[:count], name]))
        if re.fullmatch(r"\d+", text):
            found.append(int(text))
    return min(found) if found else 0
