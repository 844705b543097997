"""Reader of third-party squashfs 4.0 files: directories, inodes, extended attributes, contents.

Sources: the Linux kernel's Documentation/filesystems/squashfs.rst, squashfs-tools-ng's doc/format.adoc, squashfs_fs.h
of squashfs-tools. A file is not trusted: every number is checked against the real size before anything is read or
allocated for it. Metadata are unpacked piece by piece and a few megabytes of them are cached, for an image of any size;
a walk takes time linear in the metadata that the file really holds.
"""

from __future__ import annotations

import contextlib
import io
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

from envbuild.core.errors import VerifyError
from envbuild.core.link_walk import LinkCycleError, Place, Step, walk
from envbuild.core.regular_file import open_regular
from envbuild.oci.tar import name_count
from envbuild.squashfs import format as sq
from envbuild.squashfs.read.content import BlockReader, FileContent
from envbuild.squashfs.read.decompress import CorruptDataError, find_decompressor
from envbuild.squashfs.read.file_stream import FileStream
from envbuild.squashfs.read.inode import (
    DIRECTORY,
    KINDS,
    REGULAR,
    SYMLINK,
    Inode,
    InodeTable,
    printable_path,
    read_listing,
)
from envbuild.squashfs.read.metadata_stream import MetadataStream
from envbuild.squashfs.read.superblock import damaged_image, read_layout
from envbuild.squashfs.read.xattr import XattrTable

KNOWN = 1 << 12  # names found in folders that are cached: a chain of links may go through one many times
PATH = 1 << 14  # longer ones no program can open, and only a damaged file nests so deep


class Entry(NamedTuple):
    """A path (relative, without a leading slash; the root's is empty) and its inode."""

    path: bytes
    inode: Inode


def check_entry(name: bytes, inode: Inode, kind: int, number: int) -> None:
    """Raise CorruptDataError unless an entry of a directory states the kind of its inode, and its number: the kernel
    finds an inode that it has read before by the number in the entry."""
    if (inode.kind, inode.number) != (kind, number):
        what = "kind" if inode.kind != kind else "number"
        raise CorruptDataError(f"{printable_path(name)} is of another {what} than its inode")


class SquashTree:
    """An open squashfs file, for one thread. Every method raises VerifyError where the file is damaged."""

    def __init__(self, path: Path) -> None:
        """Open a squashfs file. Raises VerifyError for another file or version and for a codec that cannot be read;
        OSError."""
        self.path = path
        with contextlib.ExitStack() as stack:
            self.file = stack.enter_context(open_regular(path))
            layout = read_layout(self.file, str(path))
            self.superblock = block = layout.superblock
            inflate = find_decompressor(block.codec, str(path))
            number = self.file.fileno()
            tables = {name: MetadataStream(number, places, inflate) for name, places in layout.pieces.items()}
            self._listings = tables["directory"]
            sets, pairs = tables.get("xattr"), tables.get("xattr pairs")
            self._xattrs = XattrTable(sets, pairs, layout.xattrs) if sets is not None and pairs is not None else None
            self.blocks = BlockReader(number, block, inflate, tables.get("fragment"))
            with self.sound("its ids"):
                self.ids = array("I", tables["id"].read(0, 4 * block.ids))
            self._known: dict[tuple[int, bytes], int] = {}
            self._indexed: set[int] = set()  # directories whose index was checked
            self._inodes = InodeTable(tables["inode"], self._listings, self.ids, block.inodes)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._stack.close()

    @contextlib.contextmanager
    def sound(self, what: str) -> Iterator[None]:
        """Raise VerifyError, with `what` of the file is damaged, for an error of the context that reads it."""
        try:
            yield
        except (CorruptDataError, struct.error, IndexError) as error:
            raise damaged_image(str(self.path), f"{what}: {error}") from error

    # the tree
    def walk(self) -> Iterator[Entry]:
        """Yield all entries, each directory before what is in it, names in byte order: the order of paths whose
        slashes count as the smallest byte. There are limits of their number and of the bytes of their names."""
        root = self.inode(self.superblock.root)
        if root.kind != DIRECTORY:
            raise damaged_image(str(self.path), "its root is not a directory")
        yield Entry(b"", root)
        seen = {root.reference}
        if self.superblock.inodes > name_count.MAX_ENTRIES:
            raise self._too_large()
        references = array("Q", bytes(8 * (self.superblock.inodes + 1)))  # of inodes by their numbers, with 1 added
        references[root.number] = root.reference + 1
        room = self._listings.room
        stack = [(b"", self._entries(root))]
        entries_left, names_left = name_count.MAX_ENTRIES - 1, name_count.MAX_NAMES
        while stack:
            prefix, entries = stack[-1]
            for name, inode in entries:
                path = prefix + name
                entries_left, names_left = entries_left - 1, names_left - len(path) - len(inode.target)
                if entries_left < 0 or names_left < 0:
                    raise self._too_large()
                if references[inode.number] not in (0, inode.reference + 1):
                    raise damaged_image(str(self.path), f"{printable_path(path)} has the number of another inode")
                references[inode.number] = inode.reference + 1
                yield Entry(path, inode)
                if inode.kind == DIRECTORY:
                    room -= inode.size
                    # listings that overlap would make a small file endless
                    if inode.reference in seen or len(path) > PATH or room < 0:
                        raise damaged_image(str(self.path), f"directory {printable_path(path)} is listed at two places")
                    seen.add(inode.reference)
                    stack.append((path + b"/", self._entries(inode)))
                    break
            else:
                stack.pop()

    def _too_large(self) -> VerifyError:
        limits = f"{name_count.MAX_ENTRIES:,} entries, or {name_count.MAX_NAMES:,} bytes of paths and targets of links"
        return VerifyError(f"the squashfs file has more than {limits}, which is the limit", where=str(self.path))

    def lookup(self, path: bytes, *, follow: bool = True) -> Inode | None:
        """Return the inode at `path`, with symlinks taken inside the image as a container would; None where nothing
        is, or the symlinks go in a circle. With `follow` also a symlink at its end is followed. A path, with its links,
        may lead past as many entries as an image may have."""
        left = name_count.MAX_ENTRIES

        def enter(folder: Inode, name: bytes, last: bool) -> Step[Inode] | None:
            nonlocal left
            inode, passed = self._find(folder, name) if len(name) <= 256 else (None, 0)
            left -= passed
            if left < 0:
                raise self._too_large()
            if inode is None:
                return None
            return Step(inode, inode.target if inode.kind == SYMLINK else None, inode.kind == DIRECTORY)

        root = self.inode(self.superblock.root)
        if root.kind != DIRECTORY:
            return None
        try:
            place = walk(Place((root,)), path, enter, follow=follow)
        except LinkCycleError:
            return None
        return place.node if place and not place.missing else None

    def _find(self, directory: Inode, name: bytes) -> tuple[Inode | None, int]:
        """Return an entry of a directory, None if there is none; and how many entries were read to find it."""
        key, passed = (directory.reference, name), 0
        if key not in self._known:
            if len(self._known) >= KNOWN:
                self._known.clear()
            place = -1
            passed = self._check_index(directory)
            with self.sound("a directory"):
                for entry in read_listing(self._listings, directory):
                    passed += 1
                    if entry[0] >= name:
                        if entry[0] == name:
                            place = entry[1]
                            check_entry(name, self.inode(place), *entry[2:])
                        break
            self._known[key] = place
        place = self._known[key]
        return (self.inode(place) if place >= 0 else None), passed

    def _check_index(self, directory: Inode) -> int:
        """Check the index of a directory, if it has one, once; return how many entries were read for it."""
        if not directory.listing_index[1] or directory.reference in self._indexed:
            return 0
        with self.sound("a directory"):
            passed = self._inodes.check_index(directory)
        self._indexed.add(directory.reference)
        return passed

    def _entries(self, directory: Inode) -> Iterator[tuple[bytes, Inode]]:
        self._check_index(directory)
        with self.sound("a directory"):
            for name, reference, kind, number in read_listing(self._listings, directory):
                inode = self.inode(reference)
                check_entry(name, inode, kind, number)
                yield name, inode

    # inodes
    @property
    def inode_bytes(self) -> int:
        """Return how many bytes all inodes can have."""
        return self._inodes.inodes.room

    def inode(self, reference: int) -> Inode:
        """Return the inode that `reference` of a directory entry points to."""
        try:
            return self._inodes.read(reference)
        except (CorruptDataError, struct.error, IndexError) as error:
            raise damaged_image(str(self.path), f"an inode: {error}") from error

    def xattrs(self, inode: Inode) -> dict[bytes, bytes]:
        """Return the extended attributes of an inode: name with its prefix → value."""
        if inode.xattr == sq.NO_XATTR:
            return {}
        with self.sound("extended attributes"):
            if self._xattrs is None:
                raise CorruptDataError("there is no such set")
            found = self._xattrs.read(inode.xattr)
        self.blocks.spent += sum(256 + len(value) for value in found.values())
        return found

    # contents
    def words(self, inode: Inode) -> array[int]:
        """Return the size words of a file's blocks: stored length, bit 24 for a block stored as it is, 0 for one of
        zeros."""
        with self.sound("a file"):
            count = self.blocks.count(inode.size, inode.fragment)
            words = self._inodes.words(inode, count)
        self.blocks.spent += 4 * count
        return words

    def content(self, inode: Inode) -> FileContent:
        """Return the content of a file, for reading anywhere and for comparing. Raises VerifyError for an inode of
        another kind."""
        if inode.kind != REGULAR:
            raise VerifyError(f"a {KINDS[inode.kind]} has no content", where=str(self.path))
        return FileContent(self.blocks, inode.size, inode.start, inode.fragment, inode.offset, self.words(inode))

    def open(self, path: bytes) -> BinaryIO:
        """Return the file at `path`, symlinks followed, as a binary stream that can seek. Raises FileNotFoundError."""
        inode = self.lookup(path)
        if inode is None or inode.kind != REGULAR:
            raise FileNotFoundError(2, "no such file in the image", printable_path(path))
        return io.BufferedReader(FileStream(self.content(inode), str(self.path)), self.superblock.block)

    def read(self, path: bytes, limit: int = 1 << 26) -> bytes | None:
        """Return the whole file at `path`, or None when there is none. Raises VerifyError when it has over `limit`
        bytes."""
        inode = self.lookup(path)
        if inode is None or inode.kind != REGULAR:
            return None
        if inode.size > limit:
            raise VerifyError(f"{printable_path(path)} in the image has {inode.size} bytes", where=str(self.path))
        with self.sound(printable_path(path)):
            return b"".join(self.content(inode).blocks())
