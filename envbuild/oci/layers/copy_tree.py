"""A canonical layer as a tree, made of its members."""

# Names are bytes here, which pathlib does not take.
# ruff: noqa: PTH101

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from envbuild.core.link_walk import Step
from envbuild.core.store.tree_folder import TreeFolder
from envbuild.oci.layers.apply import PlainTree
from envbuild.oci.layers.changeset import join_path
from envbuild.oci.layers.lower_view import OPAQUE, list_xattrs


def describe_folders(tree: Path, paths: Iterable[bytes]) -> tuple[TreeFolder, ...]:
    """Return the attributes of folders of a tree, as records of layers and units of caches state them."""
    found = []
    for path in sorted(paths):
        full = join_path(os.fsencode(tree), path)
        status = os.lstat(full)
        xattrs = {key.decode("latin-1"): value.decode("latin-1") for key, value in list_xattrs(full).items()}
        owner = (status.st_uid, status.st_gid)
        found.append((path.decode("latin-1"), stat.S_IMODE(status.st_mode), *owner, int(status.st_mtime), xattrs))
    return tuple(found)


class TreeSink(PlainTree):
    """A `Sink` that makes the tree of a canonical layer in the new folder `tree`, with the marks of an overlay. Folders
    that are not members have the usual attributes: those of a stack are in `envbuild.oci.layers.merged_folders`."""

    follow = False  # the target of a link may be in a tree below

    def __init__(self, tree: Path) -> None:
        tree.mkdir()
        super().__init__(os.fsencode(tree))
        self.implied: set[bytes] = set()

    def look(self, parent: bytes, name: bytes, last: bool) -> Step[bytes] | None:
        """Return the folder `name` in which something is deleted: the one to delete it from is in a tree below."""
        path = join_path(parent, name)
        if self.kind(path) is None:
            self.make(path)
        return super().look(parent, name, last)

    def make(self, path: bytes) -> None:
        super().make(path)
        self.implied.add(path)

    def hide(self, path: bytes) -> None:
        os.mknod(self.full_path(path), stat.S_IFCHR, os.makedev(0, 0))
        os.utime(self.full_path(path), (0, 0), follow_symlinks=False)

    def cover(self, folder: bytes) -> None:
        os.setxattr(self.full_path(folder), OPAQUE, b"y")

    def close(self) -> None:
        super().close()
        os.chmod(self.root, 0o755)
        os.utime(self.root, (0, 0))
