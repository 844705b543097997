"""Cost of a command, as every benchmark counts it: CPU seconds (user + system of the whole process tree), wall seconds,
memory of the largest process, disk."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """Cost of commands. `memory`: peak of the largest process in MB; `disk`: peak of the watched folders in MB."""

    cpu: float
    wall: float
    memory: float
    disk: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        """Return the cost of one after the other."""
        return Cost(
            self.cpu + other.cpu, self.wall + other.wall, max(self.memory, other.memory), max(self.disk, other.disk)
        )


def measure(
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    watch: Sequence[Path] = (),
) -> Cost:
    """Run a command to its end; its output is printed if it fails. `watch`: folders whose size is sampled."""
    with tempfile.TemporaryFile() as output, Watch(watch) as watched:
        began = time.monotonic()
        process = subprocess.Popen(
            command, env={**os.environ, **(env or {})}, cwd=cwd, stdout=output, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - began
        if os.waitstatus_to_exitcode(status):
            output.seek(0)
            raise SystemExit(f"{' '.join(command)} failed:\n{output.read()[-4000:].decode(errors='replace')}")
    return Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1000, watched.peak)


class Watch:
    """Samples the size of folders, in MB, as long as it is entered; `peak` is the largest, also that at the end."""

    def __init__(self, folders: Sequence[Path], every: float = 0.5) -> None:
        self.folders, self.every, self.peak = folders, every, 0.0
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        while not self.done.wait(self.every):
            self.look()

    def look(self) -> None:
        self.peak = max(self.peak, sum(size(folder) for folder in self.folders))

    def __enter__(self) -> Watch:
        if self.folders:
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        if self.folders:
            self.thread.join()
            self.look()


def size(folder: Path) -> float:
    """Return the MB that a folder takes on its disk, hard links once."""
    total, seen = 0, set()
    for top, _, names in os.walk(folder, onerror=lambda error: None):
        for name in names:
            try:
                status = os.lstat(os.path.join(top, name))  # noqa: PTH118
            except OSError:
                continue
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_blocks * 512
    return total / 1e6


def best(count: int, once: Callable[[], Cost]) -> Cost:
    """Return the run with the least CPU of `count`."""
    return min((once() for _ in range(count)), key=lambda cost: cost.cpu)


def machine() -> None:
    """Print the machine of the figures."""
    model = next(
        (
            line.split(": ")[1]
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "",
    )
    load = " ".join(map(str, os.getloadavg()))
    print(json.dumps({"cores": len(os.sched_getaffinity(0)), "cpu": model, "kernel": os.uname().release, "load": load}))
