"""The process that holds a lock for which a command waits: any user who may read a lock's file can hold it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from envbuild.core.ownership import user_name
from envbuild.core.text import human_list

PATIENCE, PAUSE = 5.0, 0.1  # seconds: before the holder is named, and between attempts until then
NAMED = 3  # processes in a message
LOCKS = Path("/proc/locks")


def wait_for_lock(file: IO[bytes], kind: int, report: Callable[[str], object]) -> None:
    """Wait for a lock on an open file; `report` is called with its holder if that takes long."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return
        time.sleep(PAUSE)
    if holder := find_holder(file):
        report(holder)
    fcntl.flock(file, kind)


def find_holder(file: IO[bytes]) -> str:
    """Return the processes that hold a lock on an open file, with their users; empty if they are not known."""
    status = os.fstat(file.fileno())
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    found = []
    with contextlib.suppress(OSError):
        for line in LOCKS.read_text().splitlines():
            words = (
                line.split()
            )  # number: FLOCK ADVISORY WRITE pid major:minor:inode 0 EOF; "->": it waits (proc_locks(5))
            if "->" not in words and words[1:2] == ["FLOCK"] and words[5] == f"{device}:{status.st_ino}":
                with contextlib.suppress(OSError):  # it is of another pid namespace, or ended
                    found.append(f"process {words[4]} of {user_name(Path('/proc', words[4]).stat().st_uid)}")
    return human_list(found, NAMED) if found else ""
