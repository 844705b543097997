"""Compressors of squashfs blocks: zstd (the default), lz4, gzip (zlib streams), or none.

The bytes of a block depend on codec, level and the version of the library, so `library` belongs into every cache key.
One block is one complete stream. A block that does not shrink is stored as it is. Squashfs has no number for "none": as
mksquashfs does, such an image names gzip and is flagged uncompressed.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from isal.isal_zlib import crc32  # at memory speed; zlib's costs a fifth of a compression pass

from envbuild.core.errors import EnvbuildError, SpecError

__all__ = ["BLOCKS", "DEFAULTS", "IDS", "LEVELS", "Codec", "Compress", "crc32"]

Compress = Callable[["bytes | bytearray | memoryview"], bytes]

LEVELS = {"zstd": range(1, 23), "lz4": range(13), "gzip": range(1, 10), "none": range(1)}
DEFAULTS = {"zstd": 3, "lz4": 0, "gzip": 6, "none": 0}  # level when none is requested
IDS = {"gzip": 1, "lzma": 2, "lzo": 3, "xz": 4, "lz4": 5, "zstd": 6}  # squashfs-tools, squashfs_fs.h
BLOCKS = tuple(1 << power for power in range(12, 21))  # 4 KiB to 1 MiB; a kernel refuses blocks below its page size
# Tables are written again for every image, and in pieces of 8 KiB a high level gains nothing but costs a hundredfold.
TABLE_LEVEL = 6


@dataclass(frozen=True, slots=True)
class Codec:
    """A compressor with its level. Raises SpecError for a name or level that squashfs or envbuild does not have.

    lz4: level 0 is the fast one, 1 to 12 are its high-compression (HC) levels.
    """

    name: str
    level: int

    def __post_init__(self) -> None:
        if self.name not in LEVELS:
            raise SpecError(f"squashfs codec {self.name!r} is not one of {', '.join(LEVELS)}", hint="use codec zstd")
        if self.level not in LEVELS[self.name]:
            levels = LEVELS[self.name]
            hint = f"use a level from {levels[0]} to {levels[-1]}" if len(levels) > 1 else f"use level {levels[0]}"
            raise SpecError(f"{self.name} has no level {self.level}", hint=hint)

    @property
    def id(self) -> int:
        """The compressor id of the superblock."""
        return IDS["gzip" if self.name == "none" else self.name]

    @property
    def slow(self) -> bool:
        """Return whether a core takes less than about 100 MB a second."""
        return self.name == "gzip" or self.level > (5 if self.name == "zstd" else 0)

    @property
    def library(self) -> str:
        """The library and its version, e.g. ``zstd-1.5.7``; ``none`` where nothing is compressed."""
        if self.name == "none":
            return "none"
        if self.name == "gzip":
            return f"zlib-{zlib.ZLIB_RUNTIME_VERSION}"
        if self.name == "lz4":
            import lz4

            return f"lz4-{lz4.library_version_string()}"
        import zstandard

        return "zstd-" + ".".join(str(part) for part in zstandard.ZSTD_VERSION)

    @property
    def options(self) -> bytes:
        """Payload of the superblock's option block. lz4's (version 1, flags: HC) is mandatory: readers insist on it."""
        if self.name == "none":
            return b""
        if self.name == "lz4":
            return struct.pack("<II", 1, self.level > 0)
        return struct.pack("<I", self.level) if self.name == "zstd" else struct.pack("<IHH", self.level, 15, 0)

    @property
    def tables(self) -> Codec:
        """The codec of an image's tables."""
        return Codec(self.name, min(self.level, TABLE_LEVEL)) if self.name in ("zstd", "gzip") else self

    def compress(self, data: bytes | bytearray | memoryview) -> bytes:
        """Return one block as one stream; safe in any number of threads, and the interpreter lock is free meanwhile.
        What is not shorter than `data` is to be stored raw.
        """
        return self.compressor()(data)

    def compressor(self) -> Compress:
        """Return `compress` for many blocks of one thread."""
        if self.name == "zstd":
            key = f"zstd{self.level}"
            found: Compress | None = getattr(_local, key, None)
            if found is None:  # a zstandard compressor must not be used by two threads at a time
                import zstandard

                found = zstandard.ZstdCompressor(
                    level=self.level, write_checksum=False, write_content_size=True
                ).compress
                setattr(_local, key, found)
            return found
        if self.name == "gzip":
            level = self.level
            return lambda data: zlib.compress(data, level)
        if self.name == "none":
            return bytes
        import lz4.block

        pack = lz4.block.compress
        if self.level:
            return lambda data: bytes(pack(data, "high_compression", compression=self.level, store_size=False))
        return lambda data: bytes(pack(data, "default", store_size=False))

    def decompress(self, data: bytes, limit: int) -> bytes:
        """Return the content of one block, at most `limit` bytes. Raises EnvbuildError when the block is damaged."""
        try:
            return self._decompress(data, limit)
        except EnvbuildError:
            raise
        except Exception as error:  # each library has errors of its own
            raise EnvbuildError(f"a {self.name} block is damaged: {error}") from error

    def _decompress(self, data: bytes, limit: int) -> bytes:
        if self.name == "none":
            raise EnvbuildError("a block is compressed, but the codec is none")
        if self.name == "gzip":
            stream = zlib.decompressobj()
            result = stream.decompress(data, limit)
            if not stream.eof:
                raise EnvbuildError("a gzip block is truncated or larger than it may be")
            return result
        if self.name == "lz4":
            import lz4.block

            return bytes(lz4.block.decompress(data, uncompressed_size=limit))
        import zstandard

        if zstandard.frame_content_size(data) > limit:
            raise EnvbuildError("a zstd block is larger than it may be")
        # what follows a frame would become a part of a layer whose blob has the block as it is
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=limit, allow_extra_data=False)


_local = threading.local()
