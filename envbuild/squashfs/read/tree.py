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
from envbuild.core.text import escaped
from envbuild.squashfs import format as sq
from envbuild.squashfs.read.content import BlockReader, FileContent
from envbuild.squashfs.read.decompress import CorruptDataError, find_decompressor
from envbuild.squashfs.read.metadata_stream import MetadataStream
from envbuild.squashfs.read.superblock import damaged_image, read_layout

DIRECTORY, REGULAR, SYMLINK, BLOCK_DEVICE, CHAR_DEVICE, FIFO, SOCKET = range(1, 8)
KINDS = ("", "directory", "file", "symlink", "block device", "character device", "fifo", "socket")
PREFIXES = (b"user.", b"trusted.", b"security.")
ELSEWHERE = 0x100  # of an attribute's type: its value is stored once, at another place
PATH = 1 << 14  # longer ones no program can open, and only a damaged file nests so deep
LINKS = 40  # symlinks followed in one look-up, as Linux
TARGET = 0xFFFF  # bytes of a symlink
VALUE, ATTRIBUTES = 1 << 16, 1 << 22  # bytes of an attribute (Linux allows 64 KiB), and of all of one inode
RUN = sq.DIR_HEADER.size + 256 * (sq.DIR_ENTRY.size + 256)  # a header of a listing with all that may follow it

_COMMON = struct.Struct(sq.COMMON)
_XATTR = struct.Struct("<I")


class Inode(NamedTuple):
    """One inode of the file. `reference` is its identity: names with the same one are hard links."""

    kind: int  # one of DIRECTORY … SOCKET
    mode: int  # permission bits
    uid: int
    gid: int
    mtime: int
    reference: int
    links: int
    xattr: int  # number of its set of attributes, or format.NO_XATTR
    size: int = 0  # bytes of a file or of a directory's listing
    at: int = 0  # of a file's size words in the inode table; of a directory's listing in the directory table
    start: int = 0  # of a file's first stored block
    fragment: int = sq.NO_FRAGMENT
    offset: int = 0  # of the tail in its fragment block
    target: bytes = b""
    device: int = 0  # as squashfs encodes it


class Entry(NamedTuple):
    """A path (relative, without a leading slash; the root's is empty) and its inode."""

    path: bytes
    inode: Inode


class SquashTree:
    """An open squashfs file, for one thread. Every method raises VerifyError where the file is damaged."""

    def __init__(self, path: Path) -> None:
        """Open a squashfs file. Raises VerifyError for another file or version and for a codec that cannot be read;
        OSError."""
        self.path = path
        with contextlib.ExitStack() as stack:
            self.file: BinaryIO = stack.enter_context(path.open("rb"))
            layout = read_layout(self.file, str(path))
            self.superblock = block = layout.superblock
            inflate = find_decompressor(block.codec, str(path))
            number = self.file.fileno()
            tables = {name: MetadataStream(number, places, inflate) for name, places in layout.pieces.items()}
            self._inodes, self._listings = tables["inode"], tables["directory"]
            self._xattr_sets, self._xattr_pairs = tables.get("xattr"), tables.get("xattr pairs")
            self._xattr_count = layout.xattrs
            self.blocks = BlockReader(number, block, inflate, tables.get("fragment"))
            with self._sound("its ids"):
                self.ids = array("I", tables["id"].read(0, 4 * block.ids))
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._stack.close()

    @contextlib.contextmanager
    def _sound(self, what: str) -> Iterator[None]:
        try:
            yield
        except (CorruptDataError, struct.error, IndexError) as error:
            raise damaged_image(str(self.path), f"{what}: {error}") from error

    # the tree
    def walk(self) -> Iterator[Entry]:
        """Yield all entries, each directory before what is in it, names in byte order: the order of paths whose
        slashes count as the smallest byte."""
        root = self.inode(self.superblock.root)
        if root.kind != DIRECTORY:
            raise damaged_image(str(self.path), "its root is not a directory")
        yield Entry(b"", root)
        seen = {root.reference}
        room = self._listings.room
        stack = [(b"", self._entries(root))]
        while stack:
            prefix, entries = stack[-1]
            for name, inode in entries:
                path = prefix + name
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

    def lookup(self, path: bytes, *, follow: bool = True) -> Inode | None:
        """Return the inode at `path`, with symlinks taken inside the image as a container would; None where nothing
        is. With `follow` also a symlink at its end is followed."""
        left = path.split(b"/")[::-1]
        inodes = [self.inode(self.superblock.root)]  # from the root to where we are
        links = 0
        while left:
            name = left.pop()
            if name in (b"", b"."):
                continue
            if name == b"..":
                del inodes[max(len(inodes) - 1, 1) :]
                continue
            if inodes[-1].kind != DIRECTORY or len(name) > 256:
                return None
            inode = self._find(inodes[-1], name)
            if inode is None:
                return None
            if inode.kind == SYMLINK and (left or follow):
                links += 1
                if links > LINKS:
                    return None
                if inode.target.startswith(b"/"):
                    del inodes[1:]
                left += inode.target.split(b"/")[::-1]
                continue
            inodes.append(inode)
        return inodes[-1]

    def _find(self, directory: Inode, name: bytes) -> Inode | None:
        with self._sound("a directory"):
            for found, reference, _ in self._listing(directory):
                if found >= name:
                    return self.inode(reference) if found == name else None
        return None

    def _entries(self, directory: Inode) -> Iterator[tuple[bytes, Inode]]:
        with self._sound("a directory"):
            for name, reference, kind in self._listing(directory):
                inode = self.inode(reference)
                if inode.kind != kind:
                    raise CorruptDataError(f"{printable_path(name)} is of another kind than its inode")
                yield name, inode

    def _listing(self, directory: Inode) -> Iterator[tuple[bytes, int, int]]:
        """Yield names, references and kinds of a directory."""
        at, end = directory.at, directory.at + directory.size
        last = b""
        unpack = sq.DIR_ENTRY.unpack_from
        while at < end:
            data = self._listings.peek(at, min(RUN, end - at))
            more, piece, _ = sq.DIR_HEADER.unpack_from(data)
            if more >= 256:
                raise CorruptDataError("a header has more than 256 entries")
            place = sq.DIR_HEADER.size
            for _ in range(more + 1):
                offset, _, kind, length = unpack(data, place)
                place += 8
                name = data[place : place + length + 1]
                place += length + 1
                if name <= last or len(name) != length + 1 or b"/" in name or b"\0" in name or name in (b".", b".."):
                    raise CorruptDataError(f"its names are not sound at {printable_path(name)}")
                last = name
                yield name, piece << 16 | offset, kind
            at += place
        if at != end:
            raise CorruptDataError("a listing is longer than its directory")

    # inodes
    def inode(self, reference: int) -> Inode:
        """Return the inode that `reference` of a directory entry points to."""
        try:
            return self._inode(reference)
        except (CorruptDataError, struct.error, IndexError) as error:
            raise damaged_image(str(self.path), f"an inode: {error}") from error

    def _inode(self, reference: int) -> Inode:
        at = self._inodes.position(reference >> 16, reference & 0xFFFF)
        data = self._inodes.peek(at, 64)
        kind, mode, uid, gid, mtime, number = _COMMON.unpack_from(data)
        if not 0 < number <= self.superblock.inodes:
            raise CorruptDataError(f"number {number} of {self.superblock.inodes}")
        uid, gid = self.ids[uid], self.ids[gid]
        extended = kind > sq.EXTENDED
        if kind == sq.REGULAR:
            start, fragment, offset, size = sq.INODE_FILE.unpack_from(data)[6:]
            words = at + sq.INODE_FILE.size
            return Inode(
                REGULAR, mode, uid, gid, mtime, reference, 1, sq.NO_XATTR, size, words, start, fragment, offset
            )
        if kind == sq.REGULAR + sq.EXTENDED:
            start, size, _, links, fragment, offset, xattr = sq.INODE_FILE_X.unpack_from(data)[6:]
            words = at + sq.INODE_FILE_X.size
            return Inode(REGULAR, mode, uid, gid, mtime, reference, links, xattr, size, words, start, fragment, offset)
        if kind == sq.DIRECTORY:
            piece, links, size, offset, _ = sq.INODE_DIR.unpack_from(data)[6:]
            return self._directory((mode, uid, gid, mtime, reference, links, sq.NO_XATTR), size, piece, offset)
        if kind == sq.DIRECTORY + sq.EXTENDED:
            links, size, piece, _, _, offset, xattr = sq.INODE_DIR_X.unpack_from(data)[6:]
            return self._directory((mode, uid, gid, mtime, reference, links, xattr), size, piece, offset)
        basic = kind - sq.EXTENDED if extended else kind
        xattr, target, device = sq.NO_XATTR, b"", 0
        if basic == sq.SYMLINK:
            links, length = sq.INODE_LINK.unpack_from(data)[6:]
            if length > TARGET:
                raise CorruptDataError(f"a symlink of {length} bytes")
            target, end = self._inodes.read(at + sq.INODE_LINK.size, length), sq.INODE_LINK.size + length
        elif basic in (sq.BLOCK_DEVICE, sq.CHAR_DEVICE):
            links, device = sq.INODE_DEVICE.unpack_from(data)[6:]
            end = sq.INODE_DEVICE.size
        elif basic in (sq.FIFO, sq.SOCKET):
            (links,) = sq.INODE_IPC.unpack_from(data)[6:]
            end = sq.INODE_IPC.size
        else:
            raise CorruptDataError(f"a type {kind} that squashfs does not have")
        if extended:
            (xattr,) = _XATTR.unpack(self._inodes.read(at + end, 4))
        return Inode(basic, mode, uid, gid, mtime, reference, links, xattr, len(target), target=target, device=device)

    def _directory(self, common: tuple[int, int, int, int, int, int, int], size: int, piece: int, offset: int) -> Inode:
        if size <= 3:  # empty: it has no listing, and its place means nothing
            return Inode(DIRECTORY, *common)
        at = self._listings.position(piece, offset)
        if size - 3 > self._listings.room - at:
            raise CorruptDataError("a directory longer than its table")
        return Inode(DIRECTORY, *common, size - 3, at)

    # extended attributes
    def xattrs(self, inode: Inode) -> dict[bytes, bytes]:
        """Return the extended attributes of an inode: name with its prefix → value."""
        if inode.xattr == sq.NO_XATTR:
            return {}
        with self._sound("extended attributes"):
            if self._xattr_sets is None or self._xattr_pairs is None or inode.xattr >= self._xattr_count:
                raise CorruptDataError("there is no such set")
            pairs, table = self._xattr_pairs, self._xattr_sets
            place, count, _ = struct.unpack("<QII", table.read(16 * inode.xattr, 16))
            at = pairs.position(place >> 16, place & 0xFFFF)
            found: dict[bytes, bytes] = {}
            room = ATTRIBUTES
            for _ in range(count):
                prefix, length = struct.unpack("<HH", pairs.read(at, 4))
                name = PREFIXES[prefix & 0xFF] + pairs.read(at + 4, length)
                if name in found:
                    raise CorruptDataError("one name is listed twice")
                found[name], at = self._value(pairs, at + 4 + length)
                if prefix & ELSEWHERE:
                    (place,) = struct.unpack("<Q", found[name])
                    found[name], _ = self._value(pairs, pairs.position(place >> 16, place & 0xFFFF))
                room -= len(name) + len(found[name])
                if room < 0:
                    raise CorruptDataError("a set is too large")
            return found

    def _value(self, pairs: MetadataStream, at: int) -> tuple[bytes, int]:
        """Return a value and where the next record is."""
        (length,) = struct.unpack("<I", pairs.read(at, 4))
        if length > VALUE:
            raise CorruptDataError(f"a value of {length} bytes")
        return pairs.read(at + 4, length), at + 4 + length

    # contents
    def words(self, inode: Inode) -> array[int]:
        """Return the size words of a file's blocks: stored length, bit 24 for a block stored as it is, 0 for one of
        zeros."""
        with self._sound("a file"):
            return array("I", self._inodes.read(inode.at, 4 * self.blocks.count(inode.size, inode.fragment)))

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
        return io.BufferedReader(_Stream(self.content(inode), str(self.path)), self.superblock.block)

    def read(self, path: bytes, limit: int = 1 << 26) -> bytes | None:
        """Return the whole file at `path`, or None when there is none. Raises VerifyError when it has over `limit`
        bytes."""
        inode = self.lookup(path)
        if inode is None or inode.kind != REGULAR:
            return None
        if inode.size > limit:
            raise VerifyError(f"{printable_path(path)} in the image has {inode.size} bytes", where=str(self.path))
        with self._sound(printable_path(path)):
            return b"".join(self.content(inode).blocks())


class _Stream(io.RawIOBase):
    """A file of the image for Python's buffered readers."""

    def __init__(self, content: FileContent, name: str) -> None:
        self.content, self.name, self.at = content, name, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = (0, self.at, self.content.size)[whence]
        if base + offset < 0:
            raise ValueError("a position before the beginning")
        self.at = base + offset
        return self.at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        try:
            data = self.content.at(self.at)
        except CorruptDataError as error:
            raise damaged_image(self.name, f"a file: {error}") from error
        count = min(len(data), len(buffer))
        buffer[:count] = data[:count]
        self.at += count
        return count


def printable_path(path: bytes) -> str:
    """Return a path for a message: ASCII, on one line."""
    return escaped(path) if path else "/"
