"""The local file systems that jobs and services write to are writable, and have room.

After an error the kernel makes a file system read-only, or shuts it down, until the next boot: the mount is still "rw",
and the file system is "ro" (before kernel 6.15), "emergency_ro" or "shutdown" in /proc/self/mountinfo."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..facts.place import is_container
from ..facts.storage import file_system
from ..host import Host
from ..model import ADMINISTRATOR, MINOR, Need, Result, failed, not_applicable, not_run, passed

GROUP = "storage"
LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs")  # squashfs and others are never writable
BROKEN = ("ro", "emergency_ro", "shutdown")
NEEDED = (
    "/",
    "/tmp",
    "/var",
    "/var/tmp",
    "/var/log",
    "/var/spool",
    "/var/spool/slurm",
    "/var/spool/slurmd",
    "/var/lib",
)
ROOM = ("/", "/tmp", "/var/tmp", "/var/spool", "/dev/shm")


class Mount(NamedTuple):
    """A mount. `options`: of the mount, `state`: of the file system."""

    folder: str
    kind: str
    source: str
    options: tuple[str, ...]
    state: tuple[str, ...]

    @property
    def is_broken(self) -> bool:
        return self.kind in LOCAL and "rw" in self.options and any(word in self.state for word in BROKEN)


def check(host: Host, need: Need) -> Iterator[Result]:
    """Read the mounts, and the room of a few folders."""
    if is_container(host):
        yield not_applicable("those of the host cannot be seen from this container")
        return
    mounts = read_mounts(host.text("/proc/self/mountinfo"))
    if not mounts:
        yield not_run("/proc/self/mountinfo cannot be read")
        return
    visible = {mount.folder: mount for mount in mounts}  # a later mount covers an earlier one
    broken = [mount for mount in visible.values() if mount.is_broken]
    full = full_folders(host)
    if broken:
        needed = [mount for mount in broken if mount.folder in NEEDED]
        listed = ", ".join(f"{mount.folder} ({mount.source})" for mount in (needed or broken)[:4])
        fix = (
            f"dmesg | grep {broken[0].source.rpartition('/')[2]}; drain the node, then reboot; again: replace the disk"
        )
        severity = ADMINISTRATOR if needed else MINOR
        yield failed(f"read-only after an error: {listed}", severity, fix)
    elif full:
        fix = f"df -h {full[0]}; df -i {full[0]}; du -x -d 1 {full[0]} | sort -n | tail"
        yield failed(f"no room for users: {', '.join(full)}", MINOR, fix)
    else:
        yield passed(f"{sum(mount.kind in LOCAL for mount in visible.values())} local file systems writable, with room")


def read_mounts(text: str) -> list[Mount]:
    """Return the mounts of /proc/self/mountinfo (proc(5))."""
    found = []
    for line in text.split("\n"):
        before, _, after = line.partition(" - ")
        words, more = before.split(" "), after.split(" ")
        if len(words) > 5 and len(more) > 2:
            folder = words[4].replace("\\040", " ")
            found.append(Mount(folder, more[0], more[1], tuple(words[5].split(",")), tuple(more[2].split(","))))
    return found


def full_folders(host: Host) -> list[str]:
    """Return the folders where users have no bytes or no files left; the reserve of root does not count."""
    if not host.is_real:
        return []
    found = [(path, file_system(host, path)) for path in ROOM if host.has(path)]
    return [path for path, one in found if one and one.size and (not one.free or not one.files)]
