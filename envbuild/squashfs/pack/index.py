"""The index of a pack: the members of a layer, and the positions of their data.

It holds columns, not records: 300,000 members are a handful of arrays, paths are one NUL-joined string (any byte but
NUL may be part of a name). Arrays are little endian as they are in memory; `envbuild.squashfs.pack.file` puts the index
behind the data.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from operator import add
from typing import IO, Any

from envbuild.core.errors import EnvbuildError
from envbuild.core.json_text import check_count, json_value
from envbuild.oci.tar.fields import LayerTooLargeError
from envbuild.oci.tar.member import Kind, Member
from envbuild.oci.tar.name_count import MAX_ENTRIES, MAX_NAMES
from envbuild.squashfs.codec import BLOCKS, Codec

NONE = 0xFFFFFFFF  # no fragment
RAW = 1 << 24  # bit of a size word: the block is stored uncompressed
LENGTH = 0xFFFFFFFF  # of a tail's key: its length
KINDS = tuple(Kind)
FILE, DIR, SYMLINK, HARDLINK, FIFO, CHAR, BLOCK = range(len(KINDS))

MAX_HEADER = 64 << 20  # bytes of the header: sets of extended attributes, some thousand bytes in real layers
# Bytes of an index: 91 for each of the entries that a layer may have, its names and its header. Layers with two million
# files have a third of that.
MAX_INDEX = 1 << 30
PIECE = 16 << 20  # bytes of a column that are read at a time
# The metadata of a member as one packed row; then the same as columns.
ROW = struct.Struct("<QqIIIIIHxx")
MEMBER_COLUMNS = {
    "sizes": "Q",
    "mtimes": "q",
    "uids": "I",
    "gids": "I",
    "majors": "I",
    "minors": "I",
    "xattrs": "I",
    "modes": "H",
}
ROW_OFFSETS = {"sizes": 0, "mtimes": 8, "uids": 16, "gids": 20, "majors": 24, "minors": 28, "xattrs": 32, "modes": 36}
# Position of its data. `stored`: bytes of its blocks in the pack, `crcs`: CRC-32 of them, `sparse`: bytes in blocks of
# zeros, `first`: number of its first size word; `tails`: CRC-32 << 32 | length of its tail, 0 when it has none.
DATA_COLUMNS = {
    "starts": "Q", "stored": "Q", "sparse": "Q", "first": "Q", "crcs": "I", "fragments": "I", "offsets": "I",
    "tails": "Q",
}  # fmt: skip
# Fragment blocks. `members`: first row << 32 | number of the members in a block that is a piece of the tar
# (`envbuild.squashfs.pack.tar_pieces`), or 0.
FRAGMENT_COLUMNS = {
    "fragment_starts": "Q",
    "fragment_words": "I",
    "fragment_sizes": "I",
    "fragment_crcs": "I",
    "fragment_members": "Q",
}
SHARED_COLUMNS = {"words": "I", **FRAGMENT_COLUMNS}  # of all members together; first the size words of blocks
COLUMNS = {**MEMBER_COLUMNS, **DATA_COLUMNS, **SHARED_COLUMNS}
PER_MEMBER = (*MEMBER_COLUMNS, *DATA_COLUMNS)


@dataclass(slots=True)
class PackIndex:
    """Members of a layer and the positions of their data in the pack. Row i of every column of PER_MEMBER is member i.

    While a pack is written, `rows` holds the metadata of members; `seal` turns it into columns.
    """

    codec: Codec
    block: int
    library: str
    paths: list[bytes] = field(default_factory=list)
    links: list[bytes] = field(default_factory=list)
    kinds: bytearray = field(default_factory=bytearray)
    columns: dict[str, array[int]] = field(
        default_factory=lambda: {name: array(code) for name, code in COLUMNS.items()}
    )
    xattr_sets: list[tuple[tuple[bytes, bytes], ...]] = field(default_factory=lambda: [()])
    rows: bytearray = field(default_factory=bytearray)

    def __len__(self) -> int:
        return len(self.paths)

    def append(self, member: Member, kind: int, xattrs: int) -> int:
        """Add a member whose xattrs are set number `xattrs`; returns its row. Raises struct.error for numbers that do
        not fit.
        """
        major, minor = member.device
        self.rows += ROW.pack(member.size, member.mtime, member.uid, member.gid, major, minor, xattrs, member.mode)
        row = len(self.paths)
        if row >= len(self.columns["starts"]):
            self._grow(row)
        self.paths.append(member.path)
        self.links.append(member.link)
        self.kinds.append(kind)
        return row

    def _grow(self, row: int) -> None:
        more = max(4096, row // 4)
        for name in DATA_COLUMNS:
            column = self.columns[name]
            column.frombytes((b"\xff" if name == "fragments" else b"\0") * (column.itemsize * more))

    def seal(self) -> None:
        """Complete the columns, once all members are added."""
        rows = memoryview(self.rows)
        wide = {"Q": rows.cast("Q"), "q": rows.cast("q"), "I": rows.cast("I"), "H": rows.cast("H")}
        for name, code in MEMBER_COLUMNS.items():
            column = self.columns[name]
            width = column.itemsize  # one number of that width out of each row, copied in C
            column.frombytes(wide[code][ROW_OFFSETS[name] // width :: ROW.size // width].tobytes())
        self.rows = bytearray()
        for name in DATA_COLUMNS:
            del self.columns[name][len(self.paths) :]

    def blocks(self, row: int) -> int:
        """Number of size words of a file."""
        size = self.columns["sizes"][row]
        return size // self.block if self.columns["tails"][row] else -(-size // self.block)

    def words(self, row: int) -> array[int]:
        """Return the size words of a file."""
        first = self.columns["first"][row]
        return self.columns["words"][first : first + self.blocks(row)]


def encode_index(index: PackIndex) -> bytes:
    """Return the index as bytes, before compression. Raises LayerTooLargeError for too many extended attributes."""
    strings = [b"\0".join(index.paths), b"\0".join(index.links), bytes(index.kinds)]
    columns = [index.columns[name].tobytes() for name in COLUMNS]
    header = {
        "codec": index.codec.name,
        "level": index.codec.level,
        "library": index.library,
        "block": index.block,
        "members": len(index),
        "xattrs": [
            [[name.decode("latin-1"), value.decode("latin-1")] for name, value in pairs] for pairs in index.xattr_sets
        ],
        "lengths": [len(part) for part in (*strings, *columns)],
    }
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    if len(text) > MAX_HEADER:
        raise LayerTooLargeError(f"its extended attributes take {len(text)} bytes in a pack; the limit is {MAX_HEADER}")
    try:
        check_count(text)  # as a reader does
    except ValueError:
        raise LayerTooLargeError(f"it has {len(index.xattr_sets)} different sets of extended attributes") from None
    data = b"".join([struct.pack("<I", len(text)), text, *strings, *columns])
    if len(data) > MAX_INDEX:
        raise LayerTooLargeError(f"its index in a pack has {len(data)} bytes; the limit is {MAX_INDEX}")
    return data


def decode_index(file: IO[bytes], size: int) -> PackIndex:
    """Return the index of `size` bytes that `encode_index` wrote, read from `file` a piece at a time, once its header
    claims no more than a layer may have. Raises ValueError, KeyError, struct.error … for anything else.
    """
    (length,) = struct.unpack("<I", read_exactly(file, 4))
    if length > MAX_HEADER:
        raise ValueError(f"its header has more than {MAX_HEADER} bytes")
    header: Mapping[str, Any] = json_value(read_exactly(file, length))
    lengths, count = header["lengths"], header["members"]
    numbers = [header["level"], header["block"], count, *lengths]
    if any(type(number) is not int or number < 0 for number in numbers) or type(header["library"]) is not str:
        raise ValueError("a value of its header has another type")
    if len(lengths) != 3 + len(COLUMNS) or 4 + length + sum(lengths) != size:
        raise ValueError("columns do not fill the index")
    names, kinds, columns = lengths[:2], lengths[2], dict(zip(COLUMNS, lengths[3:], strict=True))
    if count > MAX_ENTRIES or sum(names) > MAX_NAMES + 2 * count:
        raise ValueError("it has more entries, or longer names, than a layer may have")
    index = PackIndex(Codec(header["codec"], header["level"]), header["block"], header["library"])
    if kinds != count or any(columns[name] != count * index.columns[name].itemsize for name in PER_MEMBER):
        raise ValueError("columns differ in length")
    index.paths, index.links = (read_names(file, some, count) for some in names)
    index.kinds = bytearray(read_exactly(file, kinds))
    for name, left in columns.items():
        while left:
            index.columns[name].frombytes(read_exactly(file, min(left, PIECE)))
            left -= min(left, PIECE)
    index.xattr_sets = [
        tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs) for pairs in header["xattrs"]
    ]
    return index


def read_names(file: IO[bytes], size: int, count: int) -> list[bytes]:
    """Return `count` paths or targets of links, which have `size` bytes. Raises ValueError."""
    text = read_exactly(file, size)
    if text.count(b"\0") + 1 != max(count, 1):
        raise ValueError("its paths and members differ in number")
    return text.split(b"\0") if count else []


def read_exactly(file: IO[bytes], size: int) -> bytes:
    """Return the next `size` bytes. Raises ValueError."""
    data = file.read(size) if size else b""
    if len(data) != size:
        raise ValueError("it is truncated")
    return data


def check_bounds(index: PackIndex, first: int, end: int) -> None:
    """Raise ValueError when the index points outside of the data of the pack, from `first` to `end`, or contradicts
    itself."""
    columns, block = index.columns, index.block
    if block not in BLOCKS:
        raise ValueError("no squashfs has blocks of that size")
    if len({len(columns[name]) for name in FRAGMENT_COLUMNS}) != 1:
        raise ValueError("fragment columns differ in length")

    def within(values: Iterable[int], limit: int, what: str) -> None:
        if max(values, default=0) > limit:
            raise ValueError(f"{what} is outside")

    within(index.kinds, len(KINDS) - 1, "a kind")
    within(columns["xattrs"], len(index.xattr_sets) - 1, "an xattr set")
    starts = (at for at, stored in zip(columns["starts"], columns["stored"], strict=True) if stored)
    if min(chain(starts, columns["fragment_starts"]), default=first) < first:
        raise ValueError("data begins before the data of the pack")
    within(map(add, columns["starts"], columns["stored"]), end, "a file")
    blocks_end = (
        at + (word & ~RAW) for at, word in zip(columns["fragment_starts"], columns["fragment_words"], strict=True)
    )
    within(blocks_end, end, "a fragment block")
    sizes = columns["fragment_sizes"]
    within([len(sizes)], len(index), "a fragment block without a member")
    within(sizes, block, "a fragment block's size")
    within(map(last_member, columns["fragment_members"]), len(index), "a member of a fragment block")
    words, fragments = len(columns["words"]), len(sizes)
    if not all(word & ~RAW for word in columns["fragment_words"]):
        raise ValueError("a fragment block has no bytes in the pack")
    names = ("sizes", "first", "fragments", "offsets", "tails", "stored")
    for kind, size, first, fragment, offset, tail, stored in zip(
        index.kinds, *(columns[name] for name in names), strict=True
    ):
        if kind != FILE:
            if stored or tail or fragment != NONE:
                raise ValueError("a member that is not a file has data")
            continue
        blocks = -(-size // block)
        if tail or fragment != NONE:
            length = tail & LENGTH
            if fragment >= fragments or length != size % block or not 0 < length <= sizes[fragment] - offset:
                raise ValueError("a tail is outside its fragment block")
            blocks = size // block
        if blocks and first + blocks > words:
            raise ValueError("size words are outside")


def last_member(members: int) -> int:
    """Return the row behind the members of a fragment block."""
    return (members >> 32) + (members & LENGTH)


def require_little_endian() -> None:
    """Raise EnvbuildError on a big-endian machine: packs and squashfs tables are written as they are in memory."""
    if sys.byteorder != "little":
        raise EnvbuildError("packs can be written and read on little-endian machines only")
