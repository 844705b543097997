"""How one layer changes a tree: the rules, whatever the tree is made of.

OCI image spec 1.1, layer.md: ``.wh.NAME`` hides NAME of the layers below, ``.wh..wh..opq`` all that the layers below
have in its folder; both say nothing about entries of their own layer, in whatever order they come. Other names that
begin with ``.wh..wh.`` are bookkeeping of aufs and no content. A folder that is a symbolic link in the tree is followed
inside of the tree, as container engines do it. A layer may come from anybody: no name in it leads out of the tree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import ClassVar

from envbuild.oci.tar import member as m
from envbuild.oci.tar.chunks import Readable
from envbuild.oci.tar.fields import show
from envbuild.oci.tar.member import Member
from envbuild.oci.tar.reader import LayerError, read_tar

AUFS = b".wh..wh."
HOPS = 40  # symbolic links on the way to one folder, as the kernel allows (path_resolution(7))


class Kind(Enum):
    """What is at a path."""

    FOLDER = 1
    LINK = 2
    OTHER = 3


class Changeset(ABC):
    """Applies one layer. Paths are bytes, relative, and those given to the abstract methods lead through real folders
    only. `follow`: links to folders are followed; else a layer that goes through one is refused."""

    follow: ClassVar[bool] = True

    def __init__(self) -> None:
        self.real = {b"": b""}  # folder as a name spells it → where it is, through no link
        self.written = {b""}  # what this layer brought, and the folders above it
        self.hops = 0

    def apply(self, stream: Readable) -> None:
        """Apply the tar `stream`. Raises LayerError for one that is damaged or leads out of the tree, and OSError."""
        read_tar(stream, self)
        self.close()

    # the sink
    def begin(self, member: Member) -> None:
        """Apply one entry, except for its data."""
        *above, name = member.path.split(b"/")
        if not name or any(part.startswith(AUFS) for part in above) or (name.startswith(AUFS) and name != m.OPAQUE):
            return
        if any(part.startswith(m.WHITEOUT) for part in above):
            raise LayerError(f"it holds the path {show(member.path)}")
        folder = self.folder(b"/".join(above))
        if name == m.OPAQUE:
            self.cover(folder)
        elif name.startswith(m.WHITEOUT):
            hidden = name[len(m.WHITEOUT) :]
            if hidden in (b"", b".", b".."):
                raise LayerError(f"it holds the path {show(member.path)}")
            self.hide(join(folder, hidden))
        else:
            path = join(folder, name)
            self.add(member, path)
            while path not in self.written:
                self.written.add(path)
                path = path.rpartition(b"/")[0]

    def data(self, chunk: bytes) -> None:  # noqa: B027  # not every tree holds content
        """The next bytes of the file that was added last."""

    def zeros(self, count: int) -> None:  # noqa: B027
        """So many zeros of it."""

    def end(self) -> None:  # noqa: B027
        """The file is complete."""

    def close(self) -> None:  # noqa: B027
        """The layer is complete."""

    def folder(self, path: bytes) -> bytes:
        """Where the folder that a name calls `path` is; made when it is missing."""
        known = self.real.get(path)
        if known is None:
            parent, _, name = path.rpartition(b"/")
            above = self.folder(parent)
            self.hops = 0
            known = self.real[path] = self.enter(above, name)
        return known

    def enter(self, parent: bytes, name: bytes) -> bytes:
        """The folder `name` in the real folder `parent`."""
        path = join(parent, name)
        kind = self.kind(path)
        if kind is Kind.LINK and self.follow and self.hops < HOPS:
            self.hops += 1
            target = self.target(path)
            place = b"" if target.startswith(b"/") else parent
            for part in target.split(b"/"):
                if part == b"..":
                    place = place.rpartition(b"/")[0]  # of the root it is the root
                elif part not in (b"", b"."):
                    place = self.enter(place, part)
            return place
        if kind is None:
            self.make(path)
        elif kind is not Kind.FOLDER:
            raise LayerError(f"it puts files below {show(path)}, which is no folder in it")
        else:
            self.seen(path)
        return path

    def source(self, member: Member, path: bytes) -> bytes:
        """The file that the hard link `member` at `path` is another name of; what was at `path` is taken away."""
        above, _, name = member.link.rpartition(b"/")
        found = join(self.folder(above), name)
        self.remove(path)
        if self.kind(found) in (None, Kind.FOLDER):
            raise LayerError(
                f"it calls {show(member.path)} another name of {show(member.link)}, which is no file in it"
            )
        return found

    def hide(self, path: bytes) -> None:
        """Take away what the layers below have at `path`."""
        if path not in self.written:
            self.remove(path)
        elif self.kind(path) is Kind.FOLDER:
            self.cover(path)

    def cover(self, folder: bytes) -> None:
        """Take away what the layers below have in a folder."""
        for name in self.names(folder):
            self.hide(join(folder, name))

    def remove(self, path: bytes) -> None:
        """Take away what is at `path`, if anything."""
        kind = self.kind(path)
        if kind is None:
            return
        if kind is not Kind.OTHER:
            self.real = {b"": b""}
        self.delete(path, kind)

    @abstractmethod
    def kind(self, path: bytes) -> Kind | None:
        """What is at `path`; None: nothing."""

    @abstractmethod
    def target(self, path: bytes) -> bytes:
        """Where the symbolic link at `path` leads."""

    @abstractmethod
    def names(self, path: bytes) -> Sequence[bytes]:
        """The names in a folder."""

    @abstractmethod
    def make(self, path: bytes) -> None:
        """Make a folder that no entry describes."""

    @abstractmethod
    def delete(self, path: bytes, kind: Kind) -> None:
        """Delete what is at `path`, with everything below it."""

    @abstractmethod
    def add(self, member: Member, path: bytes) -> None:
        """Put a member to `path`, in the place of what is there; a folder only gets other attributes."""

    def seen(self, path: bytes) -> None:  # noqa: B027  # most trees have nothing to remember
        """A folder of the tree is about to get other content."""


def join(folder: bytes, name: bytes) -> bytes:
    return folder + b"/" + name if folder else name
