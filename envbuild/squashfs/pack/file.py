"""A pack: one layer compressed for squashfs, and its index, in one file.

    16 bytes   magic, u32 format version, u32 zero; zeros up to 4096
    data       from position 4096 on: compressed blocks of files and fragment blocks, in the order of the layer,
               without gaps
    index      one zstd frame: u32 length of a JSON header, the header, then the columns it lists
    64 bytes   u64 index position, u64 its stored length, u64 its unpacked length, BLAKE2b-256 of it as stored, magic

Data begins on a page, so that an image can hold it at positions that are equal modulo 4096: then a file system with
reflinks shares the blocks. Reading checks lengths, digest and bounds; nothing in a pack is executed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envbuild.core.errors import DamagedPackError, EnvbuildError, PackFormatError
from envbuild.core.regular_file import PinnedFile, open_regular
from envbuild.core.store.build_records import PACK_VERSION
from envbuild.oci.tar.name_count import NameCount
from envbuild.squashfs.codec import Codec
from envbuild.squashfs.pack.index import (
    MAX_INDEX,
    PackIndex,
    check_bounds,
    decode_index,
    encode_index,
    require_little_endian,
)

MAGIC = b"ENVBPACK"
HEAD = struct.Struct("<8sII")
TAIL = struct.Struct("<QQQ32s8s")
PAGE = 4096
DATA = PAGE  # position of the first byte of data
# What reading an index of another form raises: another member of a group's store may have written it.
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, struct.error)
DAMAGED_HINT = "remove it, and it is made again: envbuild store check --repair"


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack on disk: its file, its index, the position where its data ends (bytes), and where in the file its
    position 0 is. `digest` of its index, which covers the checksums of its data; empty: the pack is not cached.

    `file` is open from the time when the index was read: in a store that a group shares, another member may put
    another file or a link in the place of `path`. None: the pack is in an image that is being made, and `path` leads to
    that by a descriptor.
    """

    path: Path
    index: PackIndex
    end: int
    base: int = 0
    digest: bytes = b""
    file: PinnedFile | None = None


def pack_head() -> bytes:
    """Return the bytes before the data."""
    return HEAD.pack(MAGIC, PACK_VERSION, 0).ljust(DATA, b"\0")


def pack_foot(index: PackIndex, end: int) -> bytes:
    """Return the bytes behind the data, which ends at `end`."""
    data = encode_index(index)
    stored = Codec("zstd", 3).compress(data)
    digest = hashlib.blake2b(stored, digest_size=32).digest()
    return stored + TAIL.pack(end, len(stored), len(data), digest, MAGIC)


def read_pack(path: Path) -> Pack:
    """Read the index of a pack. Raises DamagedPackError when the pack is damaged, truncated or of another format
    version.
    """
    require_little_endian()
    try:
        with open_regular(path, follow=False) as file:
            pinned = PinnedFile(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 0))
            magic, version, zero = HEAD.unpack(file.read(HEAD.size))
            if magic != MAGIC or zero:
                raise ValueError("it is not a pack")
            if version != PACK_VERSION:
                text = f"the pack has format version {version}, this envbuild reads {PACK_VERSION}"
                raise PackFormatError(text, DAMAGED_HINT, str(path))
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - TAIL.size, 0))
            position, stored, unpacked, digest, magic = TAIL.unpack(file.read(TAIL.size))
            if magic != MAGIC or position + stored + TAIL.size != size or position < DATA:
                raise ValueError("it is truncated")
            if max(stored, unpacked) > MAX_INDEX:
                raise ValueError(f"its index has more than {MAX_INDEX} bytes")
            file.seek(position)
            data = file.read(stored)
        if hashlib.blake2b(data, digest_size=32).digest() != digest:
            raise ValueError("its index does not match its digest")
        index = _unpack_index(data, unpacked)
        check_bounds(index, DATA, position)
    except PackFormatError:
        raise
    except OSError as error:
        raise DamagedPackError(f"the pack cannot be read: {error.strerror}", DAMAGED_HINT, str(path)) from error
    except (*MALFORMED, EnvbuildError) as error:
        raise DamagedPackError(f"the pack is damaged: {error}", DAMAGED_HINT, str(path)) from error
    return Pack(path, index, position, digest=digest, file=pinned)


def _unpack_index(data: bytes, size: int) -> PackIndex:
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(data) as content:
            return decode_index(content, size)
    except zstandard.ZstdError as error:
        raise ValueError(f"its index is damaged: {error}") from None


def read_packs(paths: Sequence[Path], below: Sequence[Pack] = ()) -> list[Pack]:
    """Return `below` and then the packs at `paths`: the layers of one image. Raises what `read_pack` does, InputError
    for an image with too many names to hold in memory.
    """
    packs, names = [*below], NameCount("the image")
    for pack in below:
        count_names(pack.index, names)
    for path in paths:
        packs.append(read_pack(path))
        count_names(packs[-1].index, names)
    return packs


def count_names(index: PackIndex, names: NameCount) -> None:
    """Add the members of a pack to those of its image. Raises LayerTooLargeError."""
    sets = sum(len(name) + len(value) for pairs in index.xattr_sets for name, value in pairs)
    names.add(len(index), sum(map(len, index.paths)) + sum(map(len, index.links)) + sets)


def damaged_pack(pack: Pack) -> DamagedPackError:
    """Return the error for data that does not match the index."""
    return DamagedPackError("a pack is damaged or truncated", DAMAGED_HINT, str(pack.path))
