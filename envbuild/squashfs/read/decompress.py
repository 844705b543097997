"""Decompression of the blocks of third-party squashfs files.

One block is one whole stream: zlib, .lzma, LZO1X, .xz, a bare LZ4 block, a zstd frame. The size that a stream declares
is checked before anything is allocated, so a damaged block costs no more than the limit it may fill. Compressor ids are
those of squashfs-tools (squashfs_fs.h).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from envbuild.core.errors import VerifyError
from envbuild.squashfs.codec import IDS

Decompress = Callable[[bytes, int], bytes]  # (one stored block, bytes it may have at most) → its content

NAMES = {number: name for name, number in IDS.items()}
XZ_MEMORY = 64 << 20  # the dictionary of a block of 1 MiB needs a few MiB; a false header may request 4 GiB


class CorruptDataError(ValueError):
    """A block that does not unpack, or to more than it may have."""


def find_decompressor(codec: int, where: str) -> Decompress:
    """Return the decompressor of a compressor id. Raises VerifyError for one that cannot be read; it raises
    `CorruptDataError` itself."""
    name = NAMES.get(codec, f"unknown ({codec})")
    if name not in UNPACK:
        raise VerifyError(
            f"its blocks are compressed with {name}, which envbuild cannot read",
            hint="write it again with zstd: unsquashfs -d DIR FILE; mksquashfs DIR NEW.sqsh -comp zstd",
            where=where,
        )
    unpack = UNPACK[name]

    def inflate(data: bytes, limit: int) -> bytes:
        try:
            result = unpack(data, limit)
        except Exception as error:  # every library has errors of its own
            raise CorruptDataError(f"a {name} block is damaged: {error}") from error
        if len(result) > limit:
            raise CorruptDataError(f"a {name} block is larger than it may be")
        return result

    return inflate


def _gzip(data: bytes, limit: int) -> bytes:
    from isal import isal_zlib

    stream = isal_zlib.decompressobj()
    result: bytes = stream.decompress(data, limit + 1)
    if len(result) <= limit and not stream.eof:
        raise CorruptDataError("it is truncated")
    return result


def _xz(data: bytes, limit: int) -> bytes:
    import lzma

    return _liblzma(lzma.FORMAT_XZ, data, limit)


def _lzma(data: bytes, limit: int) -> bytes:
    import lzma

    return _liblzma(lzma.FORMAT_ALONE, data, limit)


def _liblzma(form: int, data: bytes, limit: int) -> bytes:
    import lzma

    stream = lzma.LZMADecompressor(form, memlimit=XZ_MEMORY)
    result = stream.decompress(data, limit + 1)
    if len(result) <= limit and not stream.eof:
        raise CorruptDataError("it is truncated")
    return result


def _lzo(data: bytes, limit: int) -> bytes:
    from envbuild.squashfs.read.lzo import unpack_lzo

    return unpack_lzo(data, limit)


def _lz4(data: bytes, limit: int) -> bytes:
    import lz4.block

    result: bytes = lz4.block.decompress(data, uncompressed_size=limit)
    return result


def _zstd(data: bytes, limit: int) -> bytes:
    import zstandard

    size = zstandard.frame_content_size(data)  # -1: not declared; a declared size is allocated at once
    if size > limit:
        raise CorruptDataError(f"it declares {size} bytes")
    return _zstd_stream()(data, limit)


@cache
def _zstd_stream() -> Decompress:
    """Return one decompressor for the whole program: readers have one thread."""
    import zstandard

    # Bytes behind the frame: unsquashfs and squashfuse refuse them (ZSTD_decompress), the kernel reads the frame alone.
    return partial(zstandard.ZstdDecompressor().decompress, allow_extra_data=False)


UNPACK: dict[str, Decompress] = {
    "gzip": _gzip, "lzma": _lzma, "lzo": _lzo, "xz": _xz, "lz4": _lz4, "zstd": _zstd,
}  # fmt: skip
