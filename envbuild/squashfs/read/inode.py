"""Inodes and the listings of directories, as a squashfs file stores them (sources: `envbuild.squashfs.read.tree`)."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from envbuild.core.text import escaped
from envbuild.squashfs import format as sq
from envbuild.squashfs.read.decompress import CorruptDataError
from envbuild.squashfs.read.metadata_stream import MetadataStream

DIRECTORY, REGULAR, SYMLINK, BLOCK_DEVICE, CHAR_DEVICE, FIFO, SOCKET = range(1, 8)
KINDS = ("", "directory", "file", "symlink", "block device", "character device", "fifo", "socket")
TARGET = 0xFFFF  # bytes of a symlink
MODES = 0o7777
NAME = 256  # bytes of one (SQUASHFS_NAME_LEN)
MAX_WORDS = 1 << 23  # blocks of a file: 1 TiB in blocks of 128 KiB; a few kilobytes of the file can hold as many
RUN = sq.DIR_HEADER.size + 256 * (sq.DIR_ENTRY.size + 256)  # a header of a listing with all that may follow it

_COMMON = struct.Struct(sq.COMMON)
_XATTR = struct.Struct("<I")


class Inode(NamedTuple):
    """One inode of the file. `reference` is its identity: names with the same one are hard links. For the kernel it is
    `number`, which therefore no other inode may have."""

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
    number: int = 0
    listing_index: tuple[int, int] = (0, 0)  # of a directory's listing: where it is in the inode table, and its entries


@dataclass(slots=True)
class InodeTable:
    """The inodes of a file: their stream, that of the listings of directories, the table of ids, and how many inodes
    there are."""

    inodes: MetadataStream
    listings: MetadataStream
    ids: array[int]
    count: int

    def read(self, reference: int) -> Inode:
        """Return the inode that `reference` of a directory entry points to. Raises CorruptDataError, struct.error or
        IndexError."""
        at = self.inodes.position(reference >> 16, reference & 0xFFFF)
        data = self.inodes.peek(at, 64)
        kind, mode, uid, gid, mtime, number = _COMMON.unpack_from(data)
        if not 0 < number <= self.count:
            raise CorruptDataError(f"number {number} of {self.count}")
        if mode > MODES:  # a type there: kernels refuse it, or take the inode for one of that type
            raise CorruptDataError(f"a mode of {mode:o}")
        uid, gid = self.ids[uid], self.ids[gid]
        extended = kind > sq.EXTENDED
        if kind == sq.REGULAR:
            start, fragment, offset, size = sq.INODE_FILE.unpack_from(data)[6:]
            words = at + sq.INODE_FILE.size
            common = REGULAR, mode, uid, gid, mtime, reference, 1, sq.NO_XATTR, size, words
            return Inode(*common, start, fragment, offset, number=number)
        if kind == sq.REGULAR + sq.EXTENDED:
            start, size, _, links, fragment, offset, xattr = sq.INODE_FILE_X.unpack_from(data)[6:]
            words = at + sq.INODE_FILE_X.size
            common = REGULAR, mode, uid, gid, mtime, reference, links, xattr, size, words
            return Inode(*common, start, fragment, offset, number=number)
        if kind == sq.DIRECTORY:
            piece, links, size, offset, _ = sq.INODE_DIR.unpack_from(data)[6:]
            whole = Inode(DIRECTORY, mode, uid, gid, mtime, reference, links, sq.NO_XATTR, number=number)
            return self._directory(whole, size, piece, offset)
        if kind == sq.DIRECTORY + sq.EXTENDED:
            links, size, piece, _, indexed, offset, xattr = sq.INODE_DIR_X.unpack_from(data)[6:]
            index = at + sq.INODE_DIR_X.size, indexed
            whole = Inode(DIRECTORY, mode, uid, gid, mtime, reference, links, xattr, number=number, listing_index=index)
            return self._directory(whole, size, piece, offset)
        basic = kind - sq.EXTENDED if extended else kind
        xattr, target, device = sq.NO_XATTR, b"", 0
        if basic == sq.SYMLINK:
            links, length = sq.INODE_LINK.unpack_from(data)[6:]
            if length > TARGET:
                raise CorruptDataError(f"a symlink of {length} bytes")
            target, end = self.inodes.read(at + sq.INODE_LINK.size, length), sq.INODE_LINK.size + length
            if not target or b"\0" in target:  # where the kernel ends it
                raise CorruptDataError("a symlink whose target is not a path")
        elif basic in (sq.BLOCK_DEVICE, sq.CHAR_DEVICE):
            links, device = sq.INODE_DEVICE.unpack_from(data)[6:]
            end = sq.INODE_DEVICE.size
        elif basic in (sq.FIFO, sq.SOCKET):
            (links,) = sq.INODE_IPC.unpack_from(data)[6:]
            end = sq.INODE_IPC.size
        else:
            raise CorruptDataError(f"a type {kind} that squashfs does not have")
        if extended:
            (xattr,) = _XATTR.unpack(self.inodes.read(at + end, 4))
        other = basic, mode, uid, gid, mtime, reference, links, xattr, len(target)
        return Inode(*other, target=target, device=device, number=number)

    def words(self, inode: Inode, count: int) -> array[int]:
        """Return the size words of a file's `count` blocks. Raises CorruptDataError."""
        if count > MAX_WORDS:
            raise CorruptDataError(f"a file of {count} blocks")
        return array("I", self.inodes.read(inode.at, 4 * count))

    def _directory(self, whole: Inode, size: int, piece: int, offset: int) -> Inode:
        if size <= 3:  # empty: it has no listing, and its place means nothing
            if whole.listing_index[1]:  # squashfuse would read it
                raise CorruptDataError("an empty directory has an index")
            return whole
        at = self.listings.position(piece, offset)
        if size - 3 > self.listings.room - at:
            raise CorruptDataError("a directory longer than its table")
        return whole._replace(size=size - 3, at=at)

    def check_index(self, directory: Inode) -> int:
        """Check that the index of a directory leads to headers of its own listing, each to the one in front of the name
        in the index: a kernel that looks up a name begins to read there (fs/squashfs/namei.c). Return how many names
        the listing has. Raises CorruptDataError."""
        at, count = directory.listing_index
        headers: dict[int, bytes] = {}
        names = sum(1 for _ in read_listing(self.listings, directory, headers))
        last = -1
        for _ in range(count):
            start, piece, length = sq.DIR_INDEX.unpack(self.inodes.read(at, sq.DIR_INDEX.size))
            if length > 255:
                raise CorruptDataError("a name in an index is too long")
            name = self.inodes.read(at + sq.DIR_INDEX.size, length + 1)
            place = self.listings.position(piece, (directory.at + start) % sq.PIECE)
            if start <= last or place != directory.at + start or headers.get(start) != name:
                raise CorruptDataError(f"its index leads elsewhere at {printable_path(name)}")
            last, at = start, at + sq.DIR_INDEX.size + length + 1
        return names


def read_listing(
    listings: MetadataStream, directory: Inode, headers: dict[int, bytes] | None = None
) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield names, references, kinds and numbers of the inodes of a directory. `headers` gets the place of each header
    in the listing, with the name that follows it. Raises CorruptDataError."""
    at, end = directory.at, directory.at + directory.size
    last = b""
    unpack = sq.DIR_ENTRY.unpack_from
    while at < end:
        data = listings.peek(at, min(RUN, end - at))
        more, piece, base = sq.DIR_HEADER.unpack_from(data)
        if more >= 256:
            raise CorruptDataError("a header has more than 256 entries")
        place = sq.DIR_HEADER.size
        for _ in range(more + 1):
            offset, number, kind, length = unpack(data, place)
            place += 8
            name = data[place : place + length + 1]
            place += length + 1
            sound = name > last and len(name) == length + 1 <= NAME and name not in (b".", b"..")
            if not sound or b"/" in name or b"\0" in name:
                raise CorruptDataError(f"its names are not sound at {printable_path(name)}")
            if headers is not None:
                headers.setdefault(at - directory.at, name)
            last = name
            yield name, piece << 16 | offset, kind, base + number & 0xFFFFFFFF
        at += place
    if at != end:
        raise CorruptDataError("a listing is longer than its directory")


def printable_path(path: bytes) -> str:
    """Return a path for a message: ASCII, on one line."""
    return escaped(path) if path else "/"
