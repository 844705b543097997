"""The superblock and the layout of a squashfs file: for `show`, for reading its tree, and for the check that every
written file passes before it gets its name.
"""

from __future__ import annotations

import os
import struct
from array import array
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from envbuild.core.digest import is_hollow
from envbuild.core.errors import VerifyError
from envbuild.core.regular_file import open_regular
from envbuild.core.shell import shell_word
from envbuild.core.text import amount
from envbuild.squashfs import format as sq
from envbuild.squashfs.codec import BLOCKS, IDS

NAMES = {number: name for name, number in IDS.items()}
ENTRY = {"fragment": 16, "export": 8, "id": 4, "xattr": 16}  # bytes of an entry
STORED = 0x1 | 0x2 | 0x8  # superblock flags: inodes, data and fragments are not compressed
PADDED = 4096  # of mksquashfs
TAIL = 64 << 20  # of other content that is read behind a small image
MAX_PIECES = 1 << 18  # of one table: 2 GiB of metadata, 40 million inodes; only a bomb has more


def read_superblock(file: IO[bytes], name: str) -> sq.Superblock:
    """Return the superblock of an open file. Raises VerifyError when there is none of version 4.0."""
    file.seek(0)
    data = file.read(sq.SUPERBLOCK.size)
    if len(data) < sq.SUPERBLOCK.size or data[:4] != sq.MAGIC:
        raise VerifyError("this is not a squashfs file", hint=f"file {shell_word(name)}", where=name)
    _, inodes, time, block, fragments, codec, log, flags, ids, major, minor, *places = sq.SUPERBLOCK.unpack(data)
    if (major, minor) != (4, 0):
        raise VerifyError(f"this is a squashfs file of version {major}.{minor}, not 4.0", where=name)
    if block not in BLOCKS or block.bit_length() - 1 != log:
        raise damaged_image(name, "its block size is none that squashfs has")
    return sq.Superblock(inodes, time, block, fragments, codec, flags, ids, *places)


def refuse_excess(path: Path) -> None:
    """Refuse a file with more behind its image than the image, and one that consists of holes: terabytes of them take
    no disk, and hours to digest. Padding and hash trees (dm-verity) are smaller. Raises VerifyError, as
    `read_superblock`."""
    with open_regular(path) as file:
        used, size = read_superblock(file, str(path)).used, os.fstat(file.fileno()).st_size
        hollow = is_hollow(file.fileno())
    if size > 2 * used + TAIL:
        raise VerifyError(
            f"the squashfs image in it has {amount(used)}, and the file {amount(size)}",
            hint=f"truncate -s {-(-used // PADDED) * PADDED} {shell_word(path)}",
            where=str(path),
        )
    if hollow:
        why = f"it has {amount(size)}, and almost nothing of them is on the disk: no image has such holes"
        raise damaged_image(str(path), why)


def describe_superblock(file: Path) -> dict[str, Any]:
    """Return the fields of the superblock: size (bytes of the file), used, inodes, codec, level (None: unknown), block,
    time, fragments, ids, xattrs (bool). Raises VerifyError when `file` is not squashfs.
    """
    with open_regular(file) as stream:
        block = read_superblock(stream, str(file))
        level = None
        if block.flags & sq.OPTIONS and NAMES.get(block.codec) in ("zstd", "gzip"):
            options = stream.read(6)
            level = struct.unpack_from("<I", options, 2)[0] if len(options) == 6 else None
        size = os.fstat(stream.fileno()).st_size
    return {
        "size": size,
        "used": block.used,
        "inodes": block.inodes,
        "codec": "none" if block.flags & STORED == STORED else NAMES.get(block.codec, f"unknown ({block.codec})"),
        "level": level,
        "block": block.block,
        "time": block.time,
        "fragments": block.fragments,
        "ids": block.ids,
        "xattrs": block.xattr_table != sq.MISSING,
    }


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of the metadata of a file. `pieces`: table (inode, directory, fragment, export, id, xattr, xattr
    pairs) → positions of its pieces, and behind the last one where it ends; a missing table has no position at all.
    """

    superblock: sq.Superblock
    pieces: dict[str, array[int]]
    xattrs: int  # number of sets of attributes


def check_image(file: Path, *, padded: bool = True) -> None:
    """Check what a kernel checks at mount: the order of the tables, that each ends where the next begins, the length
    and order of their position lists, counts, and the padding (a third-party file may have none: `padded`). Raises
    VerifyError; reads a few kilobytes.
    """
    with open_regular(file) as stream:
        read_layout(stream, str(file), padded=padded)


def read_layout(stream: IO[bytes], name: str, *, padded: bool = False) -> Layout:
    """Return the layout of an open file, checked as in `check_image`; `name` is for messages. Raises VerifyError."""
    try:
        return _read_layout(stream, name, padded)
    except struct.error as error:
        raise damaged_image(name, f"a table is truncated ({error})") from error


def damaged_image(name: str, what: str) -> VerifyError:
    """Return the error for a damaged file."""
    hint = "make it again: envbuild make NAME; or copy it again"
    return VerifyError(f"the squashfs file is damaged: {what}", hint=hint, where=name)


def _read_layout(stream: IO[bytes], file: str, padded: bool) -> Layout:
    block = read_superblock(stream, file)
    size = os.fstat(stream.fileno()).st_size
    found: dict[str, array[int]] = {}

    def require(condition: bool, what: str) -> None:
        if not condition:
            raise damaged_image(file, what)

    def walk(name: str, at: int, stop: int) -> None:
        """Follow the headers of a table."""
        places = found[name] = array("Q")
        while at < stop:
            require(len(places) < MAX_PIECES, f"its {name} table has more than {MAX_PIECES} pieces")
            places.append(at)
            stream.seek(at)
            length = struct.unpack("<H", stream.read(2))[0] & ~sq.STORED
            require(0 < length <= sq.PIECE, f"a piece of its {name} table is damaged")
            at += 2 + length
        require(at == stop, f"its {name} table does not end where the next begins")
        places.append(stop)

    require(block.used <= size, f"it is truncated: {size} bytes of {block.used}")
    require(not padded or size % 4096 == 0, "it is not padded to 4096 bytes")
    require(0 < block.ids <= min(2 * block.inodes, 0xFFFF), "it has a wrong number of ids")
    require(block.fragments <= block.inodes, "it has more fragment blocks than files")
    require(
        block.root >> 16 < block.directory_table - block.inode_table and block.root & 0xFFFF < sq.PIECE,
        "its root is outside",
    )
    end = block.used  # tables from the last to the first: each list ends where the next table begins
    xattrs = 0
    for name, number, at, head in (
        ("xattr", None, block.xattr_table, 16),
        ("id", block.ids, block.id_table, 0),
        ("export", block.inodes, block.export_table, 0),
        ("fragment", block.fragments, block.fragment_table, 0),
    ):
        if at == sq.MISSING:
            require(not number or name == "export", f"it has no {name} table")
            continue
        require(at <= end, f"its {name} table is outside")  # equal: an empty one
        stream.seek(at)
        first = None
        if name == "xattr":
            first, xattrs = struct.unpack("<QI4x", stream.read(16))
        lists = -(-(xattrs if number is None else number) * ENTRY[name] // sq.PIECE)
        require(at + head + 8 * lists == end, f"the list of its {name} table has a wrong length")
        positions = [*struct.unpack(f"<{lists}Q", stream.read(8 * lists)), at]
        gaps = [after - before for before, after in pairwise(positions)]
        require(all(2 < gap <= sq.PIECE + 2 for gap in gaps), f"the pieces of its {name} table are out of order")
        found[name] = array("Q", positions)
        end = positions[0] if first is None else first
        if first is not None:
            walk("xattr pairs", first, positions[0])
    require(sq.SUPERBLOCK.size <= block.inode_table < block.directory_table <= end, "its tables are out of order")
    walk("inode", block.inode_table, block.directory_table)
    walk("directory", block.directory_table, end)
    return Layout(block, found, xattrs)
