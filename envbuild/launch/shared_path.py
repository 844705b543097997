"""Paths that compute nodes can read: those on a file system of the network."""

from __future__ import annotations

import os
import re
from pathlib import Path

# File systems that several machines mount.
SHARED = (
    "nfs",
    "nfs4",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "cephfs",
    "glusterfs",
    "wekafs",
    "cifs",
    "smb3",
    "pvfs2",
    "afs",
)
FUSE = ("fuse.ceph", "fuse.glusterfs", "fuse.juicefs", "fuse.mount.lustre", "fuse.sshfs", "fuse.weka")


def is_shared(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Return whether a path is on a file system of the network."""
    return file_system(path, mounts) in (*SHARED, *FUSE)


def file_system(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Return the type of the file system that a path is on; empty if it is not known."""
    try:
        text = mounts.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    real, best, kind = os.path.realpath(path), "", ""
    for line in text.split("\n"):
        head, _, tail = line.partition(" - ")
        fields = head.split(" ")
        if len(fields) < 5 or not tail:
            continue
        place = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])
        below = real == place or real.startswith(place.rstrip("/") + "/")
        if below and len(place) >= len(best):  # a later mount hides an earlier one
            best, kind = place, tail.split(" ")[0]
    return kind
