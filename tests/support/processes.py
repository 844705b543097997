"""Processes as /proc shows them (proc(5))."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

PATIENCE = 60.0  # seconds

Process = tuple[int, int]  # id, and when it started: another one may get the id


def rows() -> dict[int, tuple[int, int]]:
    """Return process → (parent, when it started) of all that have not ended."""
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (path / "stat").read_bytes().rpartition(b")")[2].split()
                if fields[0] != b"Z":
                    found[int(path.name)] = int(fields[1]), int(fields[19])
    return found


def descendants(root: int) -> set[Process]:
    """Return a process with all below it."""
    table = rows()
    found = [root] if root in table else []
    for pid in found:
        found += [child for child, (parent, _) in table.items() if parent == pid]
    return {(pid, table[pid][1]) for pid in found}


def with_variable(text: str) -> set[Process]:
    """Return the processes that were started with ``NAME=VALUE`` in their environment."""
    found = set()
    for pid, (_, began) in rows().items():
        with contextlib.suppress(OSError):
            if text.encode() in (Path("/proc") / str(pid) / "environ").read_bytes().split(b"\0"):
                found.add((pid, began))
    return found


def alive(processes: Iterable[Process]) -> set[Process]:
    """Return those that have not ended."""
    table = rows()
    return {(pid, began) for pid, began in processes if table.get(pid, (0, 0))[1] == began}


def names(processes: Collection[Process]) -> list[str]:
    """Return their command lines."""
    found = []
    for pid, _ in processes:
        with contextlib.suppress(OSError):
            found.append(
                (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
    return found


def end(processes: Callable[[], Collection[Process]], seconds: float = PATIENCE) -> list[str]:
    """Wait until there are no such processes; return what remains after some seconds."""
    limit = time.monotonic() + seconds
    while processes() and time.monotonic() < limit:
        time.sleep(0.05)
    return names(processes())


def mounts_below(folder: Path) -> list[str]:
    """Return what is mounted below a folder in this mount namespace; others end with their processes."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if os.fspath(folder) in line]
