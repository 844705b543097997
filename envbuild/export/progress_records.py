"""The records of exports in a store: their folder, the process that wrote one, and how long they remain."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

FOLDER = "exports"
DAY = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, identified so that it is not confused with another.

    `boot` and `space` (the namespace of process ids) define which pids can be compared. `began` is its start in clock
    ticks since the boot (proc_pid_stat(5), field 22).
    """

    host: str
    boot: str
    space: str
    pid: int
    began: int
    user: str = ""

    @classmethod
    def here(cls) -> Owner:
        """Return this process."""
        boot = space = user = ""
        with contextlib.suppress(OSError):
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            space = str(Path("/proc/self/ns/pid").readlink())
        with contextlib.suppress(OSError, KeyError):
            user = getpass.getuser()
        return cls(socket.gethostname(), boot, space, os.getpid(), process_start(os.getpid()) or 0, user)


def process_start(pid: int) -> int | None:
    """Return when a process of this machine began; None when it ended, 0 when that is unknown."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:  # another user's
        pass
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])
    except (OSError, ValueError, IndexError):
        return 0


def remove_old_records(root: Path) -> None:
    """Remove records that were not written for a day, and temporary files of a killed writer, from a store that this
    process has opened. A process that still runs writes its own every half minute."""
    before = time.time() - DAY
    with contextlib.suppress(OSError):
        folder = os.open(root / FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for name in os.listdir(folder):  # noqa: PTH208 - by descriptor: the name may lead elsewhere by now
                with contextlib.suppress(OSError):
                    if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime < before:
                        os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)
