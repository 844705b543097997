"""File systems: kind, size and free space of a folder."""

from __future__ import annotations

from typing import NamedTuple

from ..host import Host

NETWORK = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "ceph", "fuse.sshfs", "9p", "wekafs", "fuse.s3fs")


class FileSystem(NamedTuple):
    """A file system; sizes in bytes. `folder`: the nearest one of `path` that exists. `files`: those
    that users may still make, -1 without a limit."""

    path: str
    folder: str
    kind: str
    size: int
    free: int
    files: int = -1

    @property
    def is_network(self) -> bool:
        return self.kind in NETWORK


def file_system(host: Host, path: str) -> FileSystem | None:
    """Return the file system of a path, or of its nearest folder that exists; None if it cannot be read."""
    try:
        folder, real, size, free, files = host.call_bounded("statistics", path)
    except OSError:
        return None
    return FileSystem(path, folder, mount_kind(host.text("/proc/self/mountinfo"), real), size, free, files)


def mount_kind(mounts: str, path: str) -> str:
    """Return the kind of the file system at a path, by /proc/self/mountinfo."""
    best, kind = "", ""
    for line in mounts.split("\n"):  # and words by blanks alone: the kernel does not escape other ends of lines
        before, _, after = line.partition(" - ")
        words = before.split(" ")
        point = words[4].replace("\\040", " ") if len(words) > 4 else "-"
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best) and after:
            best, kind = point, after.split(" ")[0]
    return kind


def binary_amount(size: float) -> str:
    """Return a number of bytes as options of mount and docker have it: 8.0 GiB for --shm-size=8g."""
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MiB"


def amount(size: float) -> str:
    """Return a number of bytes: 64.0 MB (decimal)."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
