"""The resources of this process: cores and memory, as the cgroup limits them, and compile jobs from both."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from envbuild.build.plan.units import Unit
from envbuild.core.errors import EngineError, Finding

GB = 1_000_000_000
MOST_UNITS = 8  # built at once, unless the user names a number


def cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the number of CPU cores: the affinity mask, or the cgroup's quota when that is less (at least 1)."""
    count = float(len(os.sched_getaffinity(0)))
    for folder in cgroup_folders("cpu", cgroup):
        try:
            if (folder / "cpu.max").exists():
                quota, period = (folder / "cpu.max").read_text().split()
            else:
                quota, period = (folder / "cpu.cfs_quota_us").read_text(), (folder / "cpu.cfs_period_us").read_text()
            if quota.strip() != "max" and int(quota) > 0:
                count = min(count, int(quota) / int(period))
        except (OSError, ValueError):
            continue
    return max(1, int(count))


def units_at_once(workers: int) -> int:
    """Return the number of units that are built at once. workers: that of `BuildOptions`; 0: from the cores."""
    return workers or min(cores(), MOST_UNITS)


def memory(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes of memory: what the machine has available, or the cgroup's limit when that is less."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        size = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for folder in cgroup_folders("memory", cgroup):
        for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
            try:
                text = (folder / name).read_text().strip()
            except OSError:
                continue
            if text != "max":
                size = min(size, int(text))
    return size


def cgroup_folders(controller: str, cgroup: Path) -> Iterator[Path]:
    """Yield the folders of this process's cgroup and of all above it, for version 2 and version 1 (cgroups(7),
    /proc/PID/cgroup)."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        base = cgroup / controller if names else cgroup
        folder = base / path.strip("/")
        while folder != base.parent and folder.is_relative_to(base):
            if folder.is_dir():
                yield folder
            folder = folder.parent


def compile_jobs(limit: int, free: float, memory_gb: float) -> int:
    """Return the number of compile jobs at once: at most `limit`, and no more than `free` bytes hold at `memory_gb`
    each; at least 1."""
    return max(1, min(limit, int(free / (max(memory_gb, 0.1) * GB))))


def check_memory(units: Iterable[Unit], memory: float) -> None:
    """Raise EngineError for every unit of which one compile job alone needs more than `memory` bytes."""
    findings = [
        Finding(
            f"{unit.name} cannot be built here, because one of its compile jobs takes {unit.memory_gb:g} GB "
            f"and this machine, or its cgroup, has {memory / GB:.1f} GB available",
            hint="build on a larger machine and share its store, or raise the memory of the job (srun --mem)",
        )
        for unit in units
        if unit.memory_gb * GB > memory
    ]
    if findings:
        raise EngineError.of(findings)
