"""All attributes of a tree of files on disk, to compare two of them."""

from __future__ import annotations

# Names are bytes here, which pathlib does not take.
# ruff: noqa: PTH115, PTH123, PTH208
import hashlib
import os
import stat
from pathlib import Path

Listing = dict[bytes, dict[str, object]]


def list_tree(root: Path) -> Listing:
    """Return path → its entry: kind and mode, owner, time in seconds, content, target, device, attributes, and the
    first of its names."""
    found: Listing = {}
    first: dict[tuple[int, int], bytes] = {}
    top = os.fsencode(root)
    todo = [b""]
    while todo:
        path = todo.pop()
        full = top + b"/" + path if path else top
        status = os.lstat(full)
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFDIR:
            todo += [path + b"/" + name if path else name for name in os.listdir(full)]
        found[path] = {
            "mode": oct(status.st_mode),
            "owner": (status.st_uid, status.st_gid),
            "time": status.st_mtime_ns // 1_000_000_000,
            "content": content(full) if kind == stat.S_IFREG else "",
            "target": os.readlink(full) if kind == stat.S_IFLNK else b"",
            "device": status.st_rdev if kind in (stat.S_IFCHR, stat.S_IFBLK) else 0,
            "attributes": {
                name: os.getxattr(full, name, follow_symlinks=False)
                for name in os.listxattr(full, follow_symlinks=False)
            },
        }
    for path in sorted(found):
        status = os.lstat(top + b"/" + path)
        if not stat.S_ISDIR(status.st_mode):
            found[path]["name"] = first.setdefault((status.st_dev, status.st_ino), path)
    return found


def content(path: bytes) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
