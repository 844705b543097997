"""The process that holds a lock for which a command waits: any user who may read a lock's file can hold it."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from envbuild.core.ownership import user_name
from envbuild.core.text import human_list

PATIENCE, PAUSE = 5.0, 0.1  # seconds: before the holder is named, and between attempts until then
LATER = 1.0  # seconds between attempts after that
UNSEEN = "a process that is not seen from here"  # of another machine, or of another pid namespace
NAMED = 3  # processes in a message
READINGS = 3
LOCKS = Path("/proc/locks")


def wait_for_lock(file: int, kind: int, report: Callable[[str], object], limit: float = math.inf) -> None:
    """Wait for a lock on an open file (descriptor); `report` is called with its holder if that takes long.

    Raises TimeoutError after `limit` seconds (infinity: it waits in the kernel, for ever); OSError.
    """
    start = time.monotonic()
    if _try_until(start + min(PATIENCE, limit), file, kind, PAUSE):
        return
    report(find_holder(file) or UNSEEN)
    if limit == math.inf:
        fcntl.flock(file, kind)
    elif not _try_until(start + limit, file, kind, LATER):
        raise TimeoutError(f"its lock was held for {limit:.0f} s, by {find_holder(file) or UNSEEN}")


def _try_until(end: float, file: int, kind: int, pause: float) -> bool:
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return True
        left = end - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))


def find_holder(file: int) -> str:
    """Return the processes that hold a lock on an open file, with their users; empty if they are not known.

    The kernel hands its list out page by page, and locks of other processes move its rows between two pages: a row may
    come twice, or not at all (seq_file in fs/locks.c). So the list is read again if it does not name a holder.
    """
    status = os.fstat(file)
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for _ in range(READINGS):
        if found := list(dict.fromkeys(_read_holders(place))):
            return human_list(found, NAMED)
    return ""


def _read_holders(place: str) -> Iterator[str]:
    """Yield the processes with a lock on the file at a place (``major:minor:inode``) of the kernel's list.

    A row: number: FLOCK ADVISORY WRITE pid major:minor:inode 0 EOF; "->" precedes those that wait (proc_locks(5)).
    """
    with contextlib.suppress(OSError):
        for words in map(str.split, LOCKS.read_text().splitlines()):
            if "->" not in words and words[1:2] == ["FLOCK"] and words[5] == place:
                with contextlib.suppress(OSError):  # it is of another pid namespace, or ended
                    yield f"process {words[4]} of {user_name(Path('/proc', words[4]).stat().st_uid)}"
