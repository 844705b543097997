"""Rules by which one layer changes a tree, for any form of the tree.

OCI image spec 1.1, layer.md: ``.wh.NAME`` hides NAME of the layers below, ``.wh..wh..opq`` all that the layers below
have in its folder; both do not affect entries of their own layer, in any order. Other names that
begin with ``.wh..wh.`` are bookkeeping of aufs, not content. A folder that is a symbolic link in the tree is followed
inside of the tree, as container engines do it. A layer may come from an untrusted source: no name in
it leads out of the tree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import ClassVar

from envbuild.core.deep_recursion import room_for_deep_paths
from envbuild.core.link_walk import CIRCLE, LinkCycleError, Place, Step, walk
from envbuild.oci.tar import member as m
from envbuild.oci.tar.chunks import Readable
from envbuild.oci.tar.fields import quote_name
from envbuild.oci.tar.member import Member
from envbuild.oci.tar.name_count import NameCount
from envbuild.oci.tar.reader import LayerError, read_tar

ROOT = Place((b"",))
# Bytes of the paths of folders that are read: once, and again after a folder or link was replaced. Those of real
# images have some megabytes; 1.6 MB of replaced links, and of files below 1900 folders, would take 14 hours.
MAX_LOOKUPS, LEAST = 128 << 20, 64  # a folder with a short path takes time, too


class EntryKind(Enum):
    """Type of the entry at a path."""

    FOLDER = 1
    LINK = 2
    OTHER = 3


class Changeset(ABC):
    """Application of layers to one tree. Paths are bytes, relative; the abstract methods get paths through real folders
    only.

    `follow`: links to folders are followed; else a layer that goes through one is refused.
    """

    follow: ClassVar[bool] = True

    def __init__(self) -> None:
        self.real = {b"": ROOT}  # folder as a name spells it → its place, whose nodes are paths without links
        self.entries = NameCount("the image")  # of all layers
        self.lookups = 0
        self._begin_layer()

    def _begin_layer(self) -> None:
        self.written = {b""}  # entries of this layer, and the folders above them
        self.implied: set[bytes] = set()  # of these folders, those that the layer has no entry for
        self.followed: set[bytes] = set()  # links that paths of this layer lead through
        self.covered: set[bytes] = set()  # folders that have nothing of the layers below any more

    def apply(self, stream: Readable) -> None:
        """Apply the tar `stream`, one layer. Raises LayerError for one that is corrupt or leads out of the tree, and
        OSError."""
        self._begin_layer()
        with room_for_deep_paths():
            read_tar(stream, self, self.entries)
            self.close()

    # the sink
    def begin(self, member: Member) -> None:
        """Apply one entry, except for its data."""
        *above, name = member.path.split(b"/")
        if not name or any(part.startswith(m.AUFS) for part in above) or (name.startswith(m.AUFS) and name != m.OPAQUE):
            return
        if any(part.startswith(m.WHITEOUT) for part in above):
            raise LayerError(f"it holds the path {quote_name(member.path)}")
        hidden = name[len(m.WHITEOUT) :] if name.startswith(m.WHITEOUT) else None
        if hidden is not None:
            if hidden in (b"", b".", b".."):
                raise LayerError(f"it holds the path {quote_name(member.path)}")
            folder = self.find_folder(b"/".join(above))
            if folder is None:
                return
            if name == m.OPAQUE:
                self.cover_once(folder)
            else:
                self.hide(join_path(folder, hidden))
            return
        path = join_path(self.resolve_folder(b"/".join(above)), name)
        self.add(member, path)
        self.implied.discard(path)
        if path not in self.written:
            self.written.add(path)
            while (path := path.rpartition(b"/")[0]) not in self.written:
                self.written.add(path)
                self.implied.add(path)

    def data(self, chunk: bytes) -> None:  # noqa: B027  # not every tree holds content
        """Write the next bytes of the file that was added last."""

    def zeros(self, count: int) -> None:  # noqa: B027
        """Write zero bytes of that file."""

    def end(self) -> None:  # noqa: B027
        """Complete the member."""

    def close(self) -> None:  # noqa: B027
        """Complete the layer."""

    def resolve_folder(self, path: bytes) -> bytes:
        """Return the real path of the folder `path`, which is made if it is missing. Raises LayerError."""
        return self._resolve(path).node

    def _resolve(self, path: bytes) -> Place[bytes]:
        missing = []  # the longest first: a path may have two thousand parts
        while (place := self.real.get(path)) is None:
            missing.append(path)
            path = path.rpartition(b"/")[0]
        for path in reversed(missing):
            found = self._walk(place, path.rpartition(b"/")[2], path, self.enter)
            if found is None:
                raise LayerError(f"it puts files below {quote_name(path)}, which is not a folder in it")
            place = self.real[path] = found
        return place

    def find_folder(self, path: bytes) -> bytes | None:
        """Return the real path of the folder `path`; None if there is none. Raises LayerError."""
        if known := self.real.get(path):
            return known.node
        found = self._walk(ROOT, path, path, self.look)
        return None if found is None or found.missing else found.node

    def _walk(
        self, start: Place[bytes], way: bytes, path: bytes, enter: Callable[[bytes, bytes, bool], Step[bytes] | None]
    ) -> Place[bytes] | None:
        try:
            return walk(start, way, enter)
        except LinkCycleError:
            raise LayerError(f"it puts files below {quote_name(path)}, where {CIRCLE}") from None

    def enter(self, parent: bytes, name: bytes, last: bool) -> Step[bytes]:
        """Return the folder or link `name` in the real folder `parent`; a missing folder is made. Raises LayerError."""
        path = join_path(parent, name)
        self.count_lookup(path)
        kind = self.kind(path)
        if kind is EntryKind.LINK and self.follow:
            self.followed.add(path)
            return Step(path, self.target(path))
        if kind is None:
            self.make(path)
        elif kind is not EntryKind.FOLDER:
            raise LayerError(f"it puts files below {quote_name(path)}, which is not a folder in it")
        else:
            self.note_change(path)
        return Step(path, is_folder=True)

    def look(self, parent: bytes, name: bytes, last: bool) -> Step[bytes] | None:
        """Return the folder or link `name` in the real folder `parent`, None if there is none. Raises LayerError."""
        path = join_path(parent, name)
        self.count_lookup(path)
        kind = self.kind(path)
        if kind is EntryKind.LINK and self.follow:
            return Step(path, self.target(path))
        if kind is not EntryKind.FOLDER:
            return None
        self.note_change(path)
        return Step(path, is_folder=True)

    def count_lookup(self, path: bytes) -> None:
        """Count the read of a folder. Raises LayerError for more than MAX_LOOKUPS."""
        self.lookups += max(len(path), LEAST)
        if self.lookups > MAX_LOOKUPS:
            raise LayerError("its paths lead through too many folders")

    def link_source(self, member: Member, path: bytes) -> bytes:
        """Return the file that the hard link `member` at `path` leads to; what was at `path` is removed.

        Raises LayerError.
        """
        above, _, name = member.link.rpartition(b"/")
        found = join_path(self.resolve_folder(above), name)
        self.remove(path)
        if self.kind(found) in (None, EntryKind.FOLDER):
            raise LayerError(
                f"it calls {quote_name(member.path)} another name of {quote_name(member.link)}, "
                "which is not a file in it"
            )
        return found

    def hide(self, path: bytes) -> None:
        """Remove what the layers below have at `path`. Raises LayerError."""
        if path in self.followed:
            raise LayerError(f"it puts files below {quote_name(path)}, a link, and then deletes that link")
        if path not in self.written:
            self.remove(path)
        elif self.kind(path) is EntryKind.FOLDER:
            if path in self.implied:
                self.reset(path)
            self.cover_once(path)

    def cover_once(self, folder: bytes) -> None:
        """Remove what the layers below have in a folder, if that was not done. A layer of 34 kB with 4000 opaque
        whiteouts of one folder took 45 seconds otherwise."""
        if folder not in self.covered:
            self.covered.add(folder)
            self.cover(folder)

    def cover(self, folder: bytes) -> None:
        """Remove what the layers below have in a folder."""
        for name in self.names(folder):
            self.hide(join_path(folder, name))

    def remove(self, path: bytes) -> None:
        """Remove the entry at `path`, if there is one."""
        kind = self.kind(path)
        if kind is None:
            return
        if kind is not EntryKind.OTHER:
            self.real = {b"": ROOT}
        self.delete(path, kind)

    @abstractmethod
    def kind(self, path: bytes) -> EntryKind | None:
        """Return the type of the entry at `path`; None: there is none."""

    @abstractmethod
    def target(self, path: bytes) -> bytes:
        """Return the target of the symbolic link at `path`."""

    @abstractmethod
    def names(self, path: bytes) -> Sequence[bytes]:
        """Return the names in a folder."""

    @abstractmethod
    def make(self, path: bytes) -> None:
        """Create a folder that no entry describes."""

    @abstractmethod
    def delete(self, path: bytes, kind: EntryKind) -> None:
        """Delete the entry at `path`, with everything below it."""

    @abstractmethod
    def add(self, member: Member, path: bytes) -> None:
        """Add a member at `path` and replace an entry there; an existing folder only gets other attributes."""

    def reset(self, path: bytes) -> None:  # noqa: B027  # not every tree has attributes
        """Give a folder the attributes of one that no entry describes."""

    def note_change(self, path: bytes) -> None:  # noqa: B027  # most trees have nothing to record
        """Record that the content of a folder of the tree is about to change."""


def join_path(folder: bytes, name: bytes) -> bytes:
    return folder + b"/" + name if folder else name
