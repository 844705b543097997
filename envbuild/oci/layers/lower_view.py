"""Merged view of the layers below an upper directory, without mounting anything.

The rules are overlayfs' own (kernel documentation, filesystems/overlayfs.rst, "whiteouts and opaque directories", in
the ``userxattr`` form): a character device 0:0 hides the name below it, ``user.overlay.opaque`` = y hides the directory
below it, directories merge with directories and everything else replaces.
"""

# names in a layer are bytes, which pathlib does not take
# ruff: noqa: PTH123
from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence

from envbuild.core.errors import EngineError

TREE = b"tree"  # the tree of a stored layer, in its folder
IMPLIED = b"implied"  # beside it: directories of the tree that are not members, NUL-terminated
OVERLAY = "user.overlay."
OPAQUE = "user.overlay.opaque"
WHITEOUT = "user.overlay.whiteout"
REFUSED = frozenset({"user.overlay.redirect", "user.overlay.metacopy"})
NO_XATTR = frozenset({errno.ENODATA, errno.EOPNOTSUPP, errno.EPERM})
Dirs = tuple[bytes, ...]


class LowerView:
    """Merged view of layer trees, passed bottom first. Directories are resolved once and cached.

    The entry of a directory is that of the topmost layer of which it is a member. `implied`: tree → paths of its
    directories that its layer does not list: their attributes have no digest, and do not count.
    """

    def __init__(self, lowers: Sequence[bytes]) -> None:
        self.known: dict[bytes, Dirs] = {b"": tuple(reversed(lowers))}
        self.implied = {lower: found for lower in lowers if (found := read_implied(lower))}
        self.hidden = {lower + b"/" + path for lower, found in self.implied.items() for path in found}

    def is_implied(self, folder: bytes) -> bool:
        """Return whether a directory of a tree (its path on disk) is not a member of the layer."""
        return folder in self.hidden

    def dirs(self, path: bytes) -> Dirs:
        """Return the real directories (top first) that merge into the directory `path` (relative, ``b""`` the root);
        empty if there is none."""
        missing = []  # the longest first: a path may have two thousand parts
        while (found := self.known.get(path)) is None:
            missing.append(path)
            path = path.rpartition(b"/")[0]
        for path in reversed(missing):
            found = self.known[path] = self.find(found, path.rpartition(b"/")[2])[1]
        return found

    def entry(self, path: bytes) -> tuple[bytes, os.stat_result] | None:
        """Return the visible entry at `path`: its real path and its lstat; None if no layer has it as a member."""
        parent, _, name = path.rpartition(b"/")
        return self.find(self.dirs(parent), name)[0]

    def names(self, path: bytes) -> set[bytes]:
        """Return the names in the folder `path` of all trees, also of entries that are deleted."""
        found: set[bytes] = set()
        for folder in self.dirs(path):
            with os.scandir(folder) as entries:
                found.update(entry.name for entry in entries)
        return found

    def find(self, folders: Dirs, name: bytes) -> tuple[tuple[bytes, os.stat_result] | None, Dirs]:
        """Return (the visible entry `name` in merged `folders`, the real directories that merge into it). The entry is
        None also for a directory that no layer has as a member."""
        first: tuple[bytes, os.stat_result] | None = None
        merged: list[bytes] = []
        opaque = False
        for folder in folders:
            path = folder + b"/" + name
            try:
                status = os.lstat(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            if is_whiteout(path, status):
                break
            if not stat.S_ISDIR(status.st_mode):
                if not merged:
                    first = (path, status)
                break
            if path not in self.hidden:
                first = first or (path, status)
            if not opaque:
                merged.append(path)
                opaque = is_opaque(path)
            if opaque and first:  # an opaque one that is implied hides the content of the one below alone
                break
        return first, tuple(merged)


def read_implied(tree: bytes) -> tuple[bytes, ...]:
    """Return the directories of a stored tree that its layer does not list; none for a tree of another place."""
    folder, _, name = tree.rpartition(b"/")
    if name != TREE:
        return ()
    try:
        with open(folder + b"/" + IMPLIED, "rb") as file:
            return tuple(item for item in file.read().split(b"\0") if item)
    except FileNotFoundError:
        return ()


def is_whiteout(path: bytes, status: os.stat_result) -> bool:
    """Return whether an entry is a deletion: character device 0:0, or (kernel 6.8 and later, nested overlays) an empty
    file with the whiteout attribute."""
    if stat.S_ISCHR(status.st_mode):
        return status.st_rdev == 0
    return stat.S_ISREG(status.st_mode) and status.st_size == 0 and get_xattr(path, WHITEOUT) is not None


def is_opaque(path: bytes) -> bool:
    """Return whether a directory hides what the layers below have in it."""
    return get_xattr(path, OPAQUE) == b"y"


def get_xattr(path: bytes, name: str) -> bytes | None:
    """Return the value of an extended attribute, or None."""
    try:
        return os.getxattr(path, name, follow_symlinks=False)
    except OSError as error:
        if error.errno in NO_XATTR:
            return None
        raise


def list_xattrs(path: bytes) -> dict[bytes, bytes]:
    """Return the extended attributes that a layer contains: file capabilities and ``user.*`` (not overlay's own marks,
    nor ACLs and labels of the host).

    Raises EngineError for marks that would make the content of a layer depend on the layers below.
    """
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError as error:
        if error.errno in NO_XATTR:
            return {}
        raise
    found: dict[bytes, bytes] = {}
    for name in sorted(names):
        if name in REFUSED:
            raise EngineError(
                f"the overlay left {name} on {os.fsdecode(path)}: its content would depend on the layers below",
                hint="modprobe -r overlay && modprobe overlay metacopy=off redirect_dir=off",
            )
        if name == "security.capability" or (name.startswith("user.") and not name.startswith(OVERLAY)):
            found[os.fsencode(name)] = os.getxattr(path, name, follow_symlinks=False)
    return found
