"""Attributes of the folders of a stack of layer trees, made the same for every origin of the trees.

A tree has folders that its layer does not list, because something below them is a member. Their attributes have no
digest: they are copies of what the builder of the tree saw, or what a cache of units states. An overlay takes the
attributes of the topmost tree, so they would hide the ones that a layer has.
"""

# names in a layer are bytes, which pathlib does not take
# ruff: noqa: PTH101, PTH102
from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from envbuild.oci.layers.lower_view import LowerView, list_xattrs

MODE, TIME = 0o755, 0  # of a folder that is a member of no layer


def write_merged_folders(lowers: Sequence[Path], target: Path) -> bool:
    """Make the folder `target` a tree above `lowers` (bottom first), with the folders that the layer of the topmost
    tree does not list, as the topmost layer that lists them has them. Return whether there is any.

    Must run where owners read as the layers' own. Raises OSError, EngineError.
    """
    view = LowerView([os.fsencode(path) for path in lowers])
    wanted: set[bytes] = set()
    for path in {path for listed in view.implied.values() for path in listed}:
        merged = view.dirs(path)
        if merged and view.is_implied(merged[0]):  # else it is deleted, or the topmost layer has it
            while path and path not in wanted:  # with the folders above
                wanted.add(path)
                path = path.rpartition(b"/")[0]
    if not wanted:
        return False
    root = os.fsencode(target)
    for path in sorted(wanted):
        os.mkdir(root + b"/" + path)
    for path in sorted(wanted, reverse=True):
        copy_attributes(root + b"/" + path, view.entry(path))
    return True


def copy_attributes(folder: bytes, origin: tuple[bytes, os.stat_result] | None) -> None:
    """Give a folder the attributes of another one (its path and lstat), of which None has the default ones."""
    if origin is None:
        os.chown(folder, 0, 0)  # not the group of a folder above: setgid, or a file system with groups of BSD
        os.chmod(folder, MODE)
        os.utime(folder, (TIME, TIME))
        return
    path, status = origin
    os.chown(folder, status.st_uid, status.st_gid)
    os.chmod(folder, stat.S_IMODE(status.st_mode))
    for name, value in list_xattrs(path).items():
        os.setxattr(folder, name, value)
    os.utime(folder, ns=(status.st_mtime_ns, status.st_mtime_ns))
