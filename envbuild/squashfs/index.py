"""A pack: one layer compressed for squashfs, and its index.

    16 bytes   magic, u32 format version, u32 zero
    data       compressed blocks of files and fragment blocks, in the order of the layer, without gaps
    index      one zstd frame: u32 length of a JSON header, the header, then the columns it lists
    64 bytes   u64 index position, u64 its stored length, u64 its unpacked length, BLAKE2b-256 of it as stored, magic

The index holds columns, not records: 300,000 members are a handful of arrays, paths are one NUL-joined string (any
byte but NUL may stand in a name). Arrays are little endian as they lie in memory. Reading checks lengths, digest and
bounds; nothing in a pack is executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import add
from pathlib import Path
from typing import Any

from envbuild.errors import EnvbuildError
from envbuild.oci.member import Kind, Member
from envbuild.squashfs.codec import BLOCKS, Codec

MAGIC = b"ENVBPACK"
VERSION = 1  # raise it when the bytes of a pack, or their meaning, change
HEAD = struct.Struct("<8sII")
TAIL = struct.Struct("<QQQ32s8s")
NONE = 0xFFFFFFFF  # no fragment
RAW = 1 << 24  # bit of a size word: the block is stored uncompressed
KINDS = tuple(Kind)
FILE, DIR, SYMLINK, HARDLINK, FIFO, CHAR, BLOCK = range(len(KINDS))
CODES = {kind: code for code, kind in enumerate(KINDS)}

# Column → array typecode. `stored`: length of a file's blocks in the pack, `first`: number of its first size word.
COLUMNS = {
    "modes": "H", "uids": "I", "gids": "I", "mtimes": "q", "sizes": "Q", "majors": "I", "minors": "I", "xattrs": "I",
    "starts": "Q", "stored": "Q", "sparse": "Q", "first": "Q", "fragments": "I", "offsets": "I",
    "words": "I", "fragment_starts": "Q", "fragment_words": "I", "fragment_sizes": "I",
}  # fmt: skip
PER_MEMBER = tuple(COLUMNS)[:14]


@dataclass(slots=True)
class Index:
    """Members of a layer and where their data lies in the pack. Row i of every column but the last four is member i."""

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
    data_crc: int = 0

    def __len__(self) -> int:
        return len(self.paths)

    def append(self, member: Member, xattrs: int) -> int:
        """Add a member whose xattrs are set number `xattrs`; returns its row."""
        self.paths.append(member.path)
        self.links.append(member.link)
        self.kinds.append(CODES[member.kind])
        major, minor = member.device
        given = (member.mode, member.uid, member.gid, member.mtime, member.size, major, minor, xattrs)
        values = (*given, 0, 0, 0, 0, NONE, 0)
        for name, value in zip(PER_MEMBER, values, strict=True):
            self.columns[name].append(value)
        return len(self.paths) - 1

    def blocks(self, row: int) -> int:
        """Number of size words of a file."""
        size = self.columns["sizes"][row]
        return size // self.block if self.columns["fragments"][row] != NONE else -(-size // self.block)

    def words(self, row: int) -> array[int]:
        """Size words of a file."""
        first = self.columns["first"][row]
        return self.columns["words"][first : first + self.blocks(row)]


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack on disk: its file, its index, and the position where its data ends (bytes)."""

    path: Path
    index: Index
    end: int


def check_path(path: bytes) -> None:
    """Raise EnvbuildError for a path that no layer may hold: absolute, with ``.``, ``..``, empty or overlong
    components, or with NUL.
    """
    if not path:
        return
    if (
        len(path) < 256
        and path[0] not in b"/."
        and path[-1] != 47
        and not (b"/." in path or b"//" in path or 0 in path)
    ):
        return  # nearly every path, at the speed of C
    for part in path.split(b"/"):
        if part in (b"", b".", b"..") or len(part) > 255 or b"\0" in part:
            raise EnvbuildError(
                f"a layer holds a path that cannot be: {os.fsdecode(path)!r}",
                hint="layers hold relative paths without '.', '..' or NUL, and names of at most 255 bytes",
            )


def encode(index: Index) -> bytes:
    """The index as bytes, before compression."""
    strings = [b"\0".join(index.paths), b"\0".join(index.links), bytes(index.kinds)]
    columns = [index.columns[name].tobytes() for name in COLUMNS]
    header = {
        "codec": index.codec.name,
        "level": index.codec.level,
        "library": index.library,
        "block": index.block,
        "members": len(index),
        "data_crc": index.data_crc,
        "xattrs": [
            [[name.decode("latin-1"), value.decode("latin-1")] for name, value in pairs] for pairs in index.xattr_sets
        ],
        "lengths": [len(part) for part in (*strings, *columns)],
    }
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    return b"".join([struct.pack("<I", len(text)), text, *strings, *columns])


def decode(data: bytes) -> Index:
    """The index that `encode` wrote. Raises ValueError, KeyError, struct.error … for anything else."""
    (length,) = struct.unpack_from("<I", data)
    header: Mapping[str, Any] = json.loads(data[4 : 4 + length])
    parts, at = [], 4 + length
    for size in header["lengths"]:
        parts.append(data[at : at + size])
        at += size
    if at != len(data) or len(parts) != 3 + len(COLUMNS):
        raise ValueError("columns do not fill the index")
    count = header["members"]
    index = Index(
        Codec(header["codec"], header["level"]), header["block"], header["library"], data_crc=header["data_crc"]
    )
    index.paths = parts[0].split(b"\0") if count else []
    index.links = parts[1].split(b"\0") if count else []
    index.kinds = bytearray(parts[2])
    for name, part in zip(COLUMNS, parts[3:], strict=True):
        index.columns[name].frombytes(part)
    index.xattr_sets = [
        tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs) for pairs in header["xattrs"]
    ]
    return index


def check_bounds(index: Index, end: int) -> None:
    """Raise ValueError when the index points outside of the pack (`end`: where its data ends) or contradicts itself."""
    count, columns = len(index), index.columns
    lengths = {len(index.links), len(index.kinds), *(len(columns[name]) for name in PER_MEMBER)}
    if index.block not in BLOCKS or lengths != {count}:
        raise ValueError("columns differ in length")
    if len({len(columns[name]) for name in ("fragment_starts", "fragment_words", "fragment_sizes")}) != 1:
        raise ValueError("fragment columns differ in length")

    def within(values: Iterable[int], limit: int, what: str) -> None:
        if max(values, default=0) > limit:
            raise ValueError(f"{what} lies outside")

    within(index.kinds, len(KINDS) - 1, "a kind")
    within(columns["xattrs"], len(index.xattr_sets) - 1, "an xattr set")
    within(map(add, columns["starts"], columns["stored"]), end, "a file")
    blocks_end = (
        at + (word & ~RAW) for at, word in zip(columns["fragment_starts"], columns["fragment_words"], strict=True)
    )
    within(blocks_end, end, "a fragment block")
    within(columns["fragment_sizes"], index.block, "a fragment block's size")
    words = columns["words"]
    for row in range(count):
        if index.kinds[row] != FILE:
            continue
        fragment, first, blocks = columns["fragments"][row], columns["first"][row], index.blocks(row)
        if blocks and first + blocks > len(words):
            raise ValueError("size words lie outside")
        if fragment == NONE:
            continue
        tail = columns["sizes"][row] % index.block
        sizes = columns["fragment_sizes"]
        if fragment >= len(sizes) or columns["offsets"][row] + tail > sizes[fragment]:
            raise ValueError("a tail lies outside its fragment block")


def read_pack(path: Path) -> Pack:
    """Read the index of a pack. Raises EnvbuildError when the pack is damaged, cut short or of another format
    version.
    """
    little_endian()
    hint = f"remove it, and it is made again: rm '{path}'"
    try:
        with path.open("rb") as file:
            magic, version, zero = HEAD.unpack(file.read(HEAD.size))
            if magic != MAGIC or zero:
                raise ValueError("it is not a pack")
            if version != VERSION:
                raise ValueError(f"it has format version {version}, this envbuild reads {VERSION}")
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - TAIL.size, 0))
            position, stored, unpacked, digest, magic = TAIL.unpack(file.read(TAIL.size))
            if magic != MAGIC or position + stored + TAIL.size != size or position < HEAD.size:
                raise ValueError("it is cut short")
            file.seek(position)
            data = file.read(stored)
        if hashlib.blake2b(data, digest_size=32).digest() != digest:
            raise ValueError("its index does not match its digest")
        content = Codec("zstd", 1).decompress(data, unpacked)
        if len(content) != unpacked:
            raise ValueError("its index has another length")
        index = decode(content)
        check_bounds(index, position)
    except OSError as error:
        raise EnvbuildError(f"the pack cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, KeyError, TypeError, struct.error, EnvbuildError) as error:
        raise EnvbuildError(f"the pack is damaged: {error}", hint=hint, where=str(path)) from error
    return Pack(path, index, position)


def check_pack(path: Path) -> None:
    """Read all of a pack's data and compare its checksum (CRC-32 of everything between head and index); raises
    EnvbuildError.
    """
    pack = read_pack(path)
    crc, left = 0, pack.end - HEAD.size
    with path.open("rb") as file:
        file.seek(HEAD.size)
        while left:
            chunk = file.read(min(left, 1 << 20))
            crc, left = crc32(chunk, crc), left - len(chunk)
            if not chunk:
                break
    if crc != pack.index.data_crc:
        raise EnvbuildError(
            "the pack is damaged: its data does not match its checksum",
            hint=f"remove it, and it is made again: rm '{path}'",
            where=str(path),
        )


def crc32(data: bytes, value: int = 0) -> int:
    """CRC-32 at memory speed (isal; zlib's costs a fifth of a compression pass)."""
    from isal import isal_zlib

    return int(isal_zlib.crc32(data, value))


def little_endian() -> None:
    """Raise EnvbuildError on a big-endian machine: packs and squashfs tables are written from memory as they lie
    there.
    """
    if sys.byteorder != "little":
        raise EnvbuildError("packs can be written and read on little-endian machines only")
