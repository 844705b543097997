"""The end of a program and of all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

END = 1.0  # seconds that a killed program may take to end


def end_tree(process: subprocess.Popen[bytes]) -> bool:
    """Kill a program and all that it started. Return whether it ended."""
    for pid in [process.pid, *descendants(process.pid)]:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(END)
    except subprocess.TimeoutExpired:
        return False
    return True


def descendants(pid: int) -> list[int]:
    """Return the processes below a process, by /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int(entry.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.parent.name))
    found: list[int] = []
    left = [pid]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found
