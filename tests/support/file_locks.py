"""Locks on files, as the kernel lists them (proc(5), /proc/locks)."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

PATIENCE = 60.0  # seconds


def waits_for(process: subprocess.Popen[Any], file: Path) -> bool:
    """Return whether a process waits for the lock on a file: True as soon as it does, False when it has ended."""
    inode, end = str(file.stat().st_ino), time.monotonic() + PATIENCE
    while time.monotonic() < end:
        rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        if any(row[1] == "->" and row[5] == str(process.pid) and row[6].endswith(f":{inode}") for row in rows):
            return True
        if process.poll() is not None:
            return False
        time.sleep(0.02)
    return False
