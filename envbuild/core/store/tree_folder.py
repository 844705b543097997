"""Folders of an unpacked layer that are not members of the layer: their attributes, as records and caches have them."""

from __future__ import annotations

from typing import Any

from envbuild.core.inode_limits import MAX_ID, xattr_fault

# (path, mode, uid, gid, mtime, xattrs); path, names and values of attributes as Latin-1
TreeFolder = tuple[str, int, int, int, int, dict[str, str]]
MAX_MTIME = 1 << 40


def parse_tree_folder(value: Any) -> TreeFolder:
    """Return the attributes in a JSON value, each one that a file system can store. Raises TypeError, ValueError."""
    path, mode, uid, gid, mtime, xattrs = value
    numbers = (mode, 0o7777), (uid, MAX_ID), (gid, MAX_ID), (mtime, MAX_MTIME)
    if any(type(number) is not int or not 0 <= number <= most for number, most in numbers):
        raise ValueError("a number of a folder")
    if not isinstance(path, str) or not isinstance(xattrs, dict):
        raise TypeError("not a folder")
    path.encode("latin-1")
    for name, text in xattrs.items():
        if fault := xattr_fault(name.encode("latin-1"), str(text).encode("latin-1")):
            raise ValueError(f"an attribute of a folder {fault}")
    return path, mode, uid, gid, mtime, {name: str(text) for name, text in xattrs.items()}
