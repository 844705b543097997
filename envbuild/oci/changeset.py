"""How one layer changes a tree: the rules, whatever the tree is made of.

OCI image spec 1.1, layer.md: ``.wh.NAME`` hides NAME of the layers below, ``.wh..wh..opq`` all that the layers below
have in its folder; both say nothing about entries of their own layer, in whatever order they come. Other names that
begin with ``.wh..wh.`` are bookkeeping of aufs and no content. A folder that is a symbolic link in the tree is followed
inside of the tree, as container engines do it. A layer may come from anybody: no name in it leads out of the tree.
"""

from __future__ import annotations

import os
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import IO, ClassVar

from envbuild.errors import EngineError
from envbuild.oci import member as m
from envbuild.oci.decompress import entries

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

    def apply(self, stream: IO[bytes]) -> None:
        """Apply the tar `stream`. Raises EngineError for names that lead out of the tree, OSError, tarfile.TarError."""
        for tar, entry in entries(stream):
            self.entry(tar, entry)

    def entry(self, tar: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
        """Apply one entry."""
        *above, name = parts(entry.name) or [b""]
        if not name or any(part.startswith(AUFS) for part in above) or (name.startswith(AUFS) and name != m.OPAQUE):
            return
        if any(part.startswith(m.WHITEOUT) for part in above):
            raise EngineError(f"a layer holds the path {entry.name!r}")
        folder = self.folder(b"/".join(above))
        if name == m.OPAQUE:
            self.cover(folder)
        elif name.startswith(m.WHITEOUT):
            hidden = name[len(m.WHITEOUT) :]
            if hidden in (b"", b".", b".."):
                raise EngineError(f"a layer holds the path {entry.name!r}")
            self.hide(join(folder, hidden))
        else:
            path = join(folder, name)
            self.add(tar, entry, path)
            while path not in self.written:
                self.written.add(path)
                path = path.rpartition(b"/")[0]

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
            raise EngineError(f"a layer puts files below {os.fsdecode(path)}, which is no folder in it")
        else:
            self.seen(path)
        return path

    def source(self, entry: tarfile.TarInfo, path: bytes) -> bytes:
        """The file that the hard link `entry` at `path` is another name of; what was at `path` is taken away."""
        *above, name = parts(entry.linkname) or [b""]
        found = join(self.folder(b"/".join(above)), name)
        self.remove(path)
        if not name or self.kind(found) in (None, Kind.FOLDER):
            raise EngineError(
                f"a layer calls {entry.name!r} another name of {entry.linkname!r}, which is no file in it"
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
    def add(self, tar: tarfile.TarFile, entry: tarfile.TarInfo, path: bytes) -> None:
        """Put an entry to `path`, in the place of what is there; a folder only gets other attributes."""

    def seen(self, path: bytes) -> None:  # noqa: B027  # most trees have nothing to remember
        """A folder of the tree is about to get other content."""


def parts(name: str) -> list[bytes]:
    """The parts of a path in a layer; none for the root. Raises EngineError for ``..``."""
    found = [part for part in os.fsencode(name).split(b"/") if part not in (b"", b".")]
    if b".." in found:
        raise EngineError(f"a layer holds the path {name!r}")
    return found


def join(folder: bytes, name: bytes) -> bytes:
    return folder + b"/" + name if folder else name
