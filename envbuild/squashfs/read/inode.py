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
MAX_WORDS = 1 << 23  # blocks of a file: 1 TiB in blocks of 128 KiB; a few kilobytes of the file can hold as many
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
            target, end = self.inodes.read(at + sq.INODE_LINK.size, length), sq.INODE_LINK.size + length
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
        return Inode(basic, mode, uid, gid, mtime, reference, links, xattr, len(target), target=target, device=device)

    def words(self, inode: Inode, count: int) -> array[int]:
        """Return the size words of a file's `count` blocks. Raises CorruptDataError."""
        if count > MAX_WORDS:
            raise CorruptDataError(f"a file of {count} blocks")
        return array("I", self.inodes.read(inode.at, 4 * count))

    def _directory(self, common: tuple[int, int, int, int, int, int, int], size: int, piece: int, offset: int) -> Inode:
        if size <= 3:  # empty: it has no listing, and its place means nothing
            return Inode(DIRECTORY, *common)
        at = self.listings.position(piece, offset)
        if size - 3 > self.listings.room - at:
            raise CorruptDataError("a directory longer than its table")
        return Inode(DIRECTORY, *common, size - 3, at)


def read_listing(listings: MetadataStream, directory: Inode) -> Iterator[tuple[bytes, int, int]]:
    """Yield names, references and kinds of a directory. Raises CorruptDataError."""
    at, end = directory.at, directory.at + directory.size
    last = b""
    unpack = sq.DIR_ENTRY.unpack_from
    while at < end:
        data = listings.peek(at, min(RUN, end - at))
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


def printable_path(path: bytes) -> str:
    """Return a path for a message: ASCII, on one line."""
    return escaped(path) if path else "/"
