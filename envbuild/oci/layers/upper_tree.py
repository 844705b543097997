"""Unpacks layer tars of other builders, each above others.

`apply_tar` unpacks into the form of an overlay's upper directory, so that a layer meets the same clean list and packer
as envbuild's own (`envbuild.oci.layers.layer.make_layer`): deletions become character devices 0:0 and opaque folders
get ``user.overlay.opaque`` (`envbuild.oci.layers.lower_view`). Several tars, bottom first, may be unpacked into one
tree: they become one layer.
"""

# Names are bytes here, which pathlib does not take.
# ruff: noqa: PTH101, PTH108
from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from envbuild.core.link_walk import Step
from envbuild.oci.layers.apply import PlainTree
from envbuild.oci.layers.changeset import EntryKind, join_path
from envbuild.oci.layers.lower_view import OPAQUE, LowerView, is_opaque, is_whiteout, list_xattrs
from envbuild.oci.layers.scan import RENAME
from envbuild.oci.tar import member as m
from envbuild.oci.tar.decompress import convert_layer_errors
from envbuild.oci.tar.fields import LayerError, quote_name
from envbuild.oci.tar.member import Member


def apply_tar(file: IO[bytes], tree: Path, lowers: Sequence[Path]) -> None:
    """Unpack one layer tar over the content of `tree`, with owners, modes, times (whole seconds) and attributes.

    `lowers`: trees below, bottom first; folders that the tar implies get the attributes they have there. Device nodes
    are left out. Must run as root, or root of a user namespace. Raises OSError, InputError for a tar that is corrupt,
    leaves its folder or has files with the name of a whiteout, EngineError for owners that are not available here.
    """
    with convert_layer_errors("a layer"):
        _UpperTree(os.fsencode(tree), LowerView([os.fsencode(path) for path in lowers])).apply(file)


class _UpperTree(PlainTree):
    """Folder on disk above other layers: what a layer deletes there is marked."""

    follow = False  # the target of a link may be in a tree below

    def __init__(self, root: bytes, below: LowerView) -> None:
        super().__init__(root)
        self.below = below
        self.shows = {b"": True}  # see `shows_below`

    def begin(self, member: Member) -> None:
        """Apply one entry. Raises LayerError for a name of a whiteout that is not an empty file: no engine writes such
        a mark, so it is a file of a step, which other steps still saw as one."""
        if member.path.rpartition(b"/")[2].startswith(m.WHITEOUT) and (member.kind is not m.Kind.FILE or member.size):
            what = f"it holds {quote_name(member.path)}, a file of a step whose name deletes another one in a layer"
            raise LayerError(what, RENAME)
        super().begin(member)

    def enter(self, parent: bytes, name: bytes, last: bool) -> Step[bytes]:
        path = join_path(parent, name)
        if self.is_deleted(path):  # its new content needs a folder that shows nothing of the one below
            os.unlink(self.full_path(path))
            super().make(path)
            self.make_opaque(path)
        return super().enter(parent, name, last)

    def look(self, parent: bytes, name: bytes, last: bool) -> Step[bytes] | None:
        path = join_path(parent, name)
        if self.kind(path) is None and self.find_below(path):
            self.make(path)
        return super().look(parent, name, last)

    def is_deleted(self, path: bytes) -> bool:
        """Return whether there is the mark of a deletion at `path`."""
        try:
            status = os.lstat(self.full_path(path))
        except FileNotFoundError:
            return False
        return is_whiteout(self.full_path(path), status)

    def find_below(self, path: bytes) -> tuple[bytes, os.stat_result] | None:
        """Return the folder at `path` in the trees below, its path on disk and its attributes; None if it is hidden."""
        found = self.below.entry(path) if self.shows_below(path.rpartition(b"/")[0]) else None
        return found if found and stat.S_ISDIR(found[1].st_mode) else None

    def shows_below(self, path: bytes) -> bool:
        """Return whether a folder of this tree shows what the trees below have in it: no folder above it is opaque."""
        missing = []
        while (known := self.shows.get(path)) is None:
            missing.append(path)
            path = path.rpartition(b"/")[0]
        for path in reversed(missing):
            known = self.shows[path] = known and not is_opaque(self.full_path(path))
        return known

    def make_opaque(self, path: bytes) -> None:
        os.setxattr(self.full_path(path), OPAQUE, b"y")
        self.shows = {b"": True}

    def make(self, path: bytes) -> None:
        super().make(path)
        full, found = self.full_path(path), self.find_below(path)
        if found:
            real, status = found
            os.chown(full, status.st_uid, status.st_gid)
            os.chmod(full, stat.S_IMODE(status.st_mode))
            self.set_xattrs(full, list_xattrs(real))
            self.times[path] = status.st_mtime

    def add(self, member: Member, path: bytes) -> None:
        hides = member.kind is m.Kind.DIR and self.kind(path) in (EntryKind.LINK, EntryKind.OTHER)
        super().add(member, path)
        if hides:  # a folder in the place of a deletion or a file shows nothing of the layers below
            self.make_opaque(path)

    def hide(self, path: bytes) -> None:
        super().hide(path)
        if path not in self.written:
            os.mknod(self.full_path(path), stat.S_IFCHR, os.makedev(0, 0))

    def cover(self, folder: bytes) -> None:
        for name in self.names(folder):
            super().hide(join_path(folder, name))
        if folder:
            self.make_opaque(folder)
            return
        for name in self.below.names(folder):  # the root of an overlay is not opaque
            if self.kind(name) is None:
                self.hide(name)

    def delete(self, path: bytes, kind: EntryKind) -> None:
        super().delete(path, kind)
        self.shows = {b"": True}
