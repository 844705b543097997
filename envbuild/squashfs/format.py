"""Squashfs 4.0 on disk: superblock, inodes, metadata streams, tables.

Sources: the Linux kernel's Documentation/filesystems/squashfs.rst, squashfs-tools-ng's doc/format.adoc, squashfs_fs.h
of squashfs-tools. All numbers are little endian. Pieces of metadata are 8192 bytes each before compression; a
reference to one is (position of the piece in its table) << 16 | (offset in the piece).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from envbuild.squashfs.codec import Compress

MAGIC = b"hsqs"
MISSING = 0xFFFFFFFFFFFFFFFF  # position of a table that is not there
NO_XATTR = NO_FRAGMENT = 0xFFFFFFFF
PIECE = 8192
STORED = 0x8000  # of a metadata header: the piece is stored uncompressed

UNCOMPRESSED = 0x1 | 0x2 | 0x8 | 0x100  # inodes, data, fragments, attributes: as mksquashfs sets them
ALWAYS_FRAGMENTS, DUPLICATES, EXPORT, NO_XATTRS, OPTIONS = 0x20, 0x40, 0x80, 0x200, 0x400  # superblock flags

SUPERBLOCK = struct.Struct("<4s4I6H8Q")

# Inode types; the extended form of one is seven higher.
DIRECTORY, REGULAR, SYMLINK, BLOCK_DEVICE, CHAR_DEVICE, FIFO, SOCKET = range(1, 8)
EXTENDED = 7

COMMON = "<HHHHII"  # type, mode, uid index, gid index, mtime, inode number
INODE_DIR = struct.Struct(COMMON + "IIHHI")  # listing's piece, links, size + 3, offset in the piece, parent's number
INODE_DIR_X = struct.Struct(COMMON + "IIIIHHI")  # links, size + 3, piece, parent's number, index count, offset, xattr
INODE_FILE = struct.Struct(COMMON + "IIII")  # start, fragment, offset in it, size
INODE_FILE_X = struct.Struct(COMMON + "QQQIIII")  # start, size, sparse bytes, links, fragment, offset in it, xattr
INODE_LINK = struct.Struct(COMMON + "II")  # links, length of the target that follows (extended: then u32 xattr)
INODE_DEVICE = struct.Struct(COMMON + "II")  # links, device (extended: then u32 xattr)
INODE_IPC = struct.Struct(COMMON + "I")  # links (extended: then u32 xattr)

DIR_HEADER = struct.Struct("<III")  # entries - 1, piece of their inodes, base of the inode numbers
DIR_ENTRY = struct.Struct("<HhHH")  # offset in the piece, inode number - base, basic type, length of the name - 1
DIR_INDEX = struct.Struct("<III")  # offset in the listing, piece of the directory table, length of the name - 1


@dataclass(frozen=True, slots=True)
class Superblock:
    """The first 96 bytes. Positions and sizes in bytes, `time` in seconds since 1970."""

    inodes: int
    time: int
    block: int
    fragments: int
    codec: int
    flags: int
    ids: int
    root: int
    used: int
    id_table: int
    xattr_table: int
    inode_table: int
    directory_table: int
    fragment_table: int
    export_table: int

    def pack(self) -> bytes:
        """Return the superblock as bytes."""
        return SUPERBLOCK.pack(
            MAGIC, self.inodes, self.time, self.block, self.fragments, self.codec,
            self.block.bit_length() - 1, self.flags, self.ids, 4, 0, self.root, self.used, self.id_table,
            self.xattr_table, self.inode_table, self.directory_table, self.fragment_table, self.export_table,
        )  # fmt: skip


class MetadataWriter:
    """A metadata stream: written in order, cut into pieces, each compressed and given its header."""

    def __init__(self, compress: Compress) -> None:
        self.compress = compress
        self.out = bytearray()
        self.part = bytearray()

    @property
    def position(self) -> tuple[int, int]:
        """(piece, offset) of the next byte; the offset is below 8192 always."""
        return len(self.out), len(self.part)

    def write(self, data: bytes) -> None:
        self.part += data
        if len(self.part) >= PIECE:
            self.cut()

    def cut(self) -> None:
        """Put away the whole pieces of `part`."""
        while len(self.part) >= PIECE:
            self._cut(bytes(self.part[:PIECE]))
            del self.part[:PIECE]

    def finish(self) -> bytes:
        """Return the whole stream."""
        if self.part:
            self._cut(bytes(self.part))
            self.part.clear()
        return bytes(self.out)

    def _cut(self, piece: bytes) -> None:
        packed = self.compress(piece)
        if len(packed) < len(piece):
            self.out += struct.pack("<H", len(packed)) + packed
        else:
            self.out += struct.pack("<H", len(piece) | STORED) + piece


def lookup_table(entries: bytes, compress: Compress, position: int) -> tuple[bytes, int]:
    """Return a look-up table at `position`: its pieces and, right after them, their positions. Returns (bytes,
    position of that list).
    """
    pieces = bytearray()
    positions = []
    for at in range(0, len(entries), PIECE):
        positions.append(position + len(pieces))
        stream = MetadataWriter(compress)
        stream.write(entries[at : at + PIECE])
        pieces += stream.finish()
    return bytes(pieces) + struct.pack(f"<{len(positions)}Q", *positions), position + len(pieces)


def device_number(major: int, minor: int) -> int:
    """Return a device number as squashfs (and Linux) encodes it."""
    return major << 8 | minor & 0xFF | (minor & ~0xFF) << 12
