"""Compressors of squashfs blocks: zstd (the default) and gzip (zlib streams).

The bytes of a block depend on codec, level and the version of the library, so `library` belongs into every cache key.
One block is one complete stream that names its own size. A block that does not shrink is stored as it is.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from envbuild.errors import EnvbuildError, SpecError

Compress = Callable[[bytes | memoryview], bytes]

LEVELS = {"zstd": range(1, 23), "gzip": range(1, 10)}
IDS = {"gzip": 1, "lzma": 2, "lzo": 3, "xz": 4, "lz4": 5, "zstd": 6}  # squashfs-tools, squashfs_fs.h
BLOCKS = tuple(1 << power for power in range(12, 21))  # 4 KiB to 1 MiB; a kernel refuses blocks below its page size


@dataclass(frozen=True, slots=True)
class Codec:
    """A compressor with its level. Raises SpecError for a name or level that squashfs or envbuild does not have."""

    name: str
    level: int

    def __post_init__(self) -> None:
        if self.name not in LEVELS:
            raise SpecError(f"squashfs codec {self.name!r} is not one of {', '.join(LEVELS)}", hint="use codec zstd")
        if self.level not in LEVELS[self.name]:
            levels = LEVELS[self.name]
            raise SpecError(
                f"{self.name} has no level {self.level}", hint=f"use a level from {levels[0]} to {levels[-1]}"
            )

    @property
    def id(self) -> int:
        """The compressor id of the superblock."""
        return IDS[self.name]

    @property
    def library(self) -> str:
        """The library and its version, e.g. ``zstd-1.5.7``."""
        if self.name == "gzip":
            return f"zlib-{zlib.ZLIB_RUNTIME_VERSION}"
        import zstandard

        return "zstd-" + ".".join(str(part) for part in zstandard.ZSTD_VERSION)

    @property
    def options(self) -> bytes:
        """Payload of the superblock's option block (zstd: level; gzip: level, window bits, strategies)."""
        return struct.pack("<I", self.level) if self.name == "zstd" else struct.pack("<IHH", self.level, 15, 0)

    def compress(self, data: bytes | memoryview) -> bytes:
        """One block as one stream; safe in any number of threads, and the interpreter lock is free meanwhile."""
        if self.name == "gzip":
            return zlib.compress(data, self.level)
        compressor = getattr(_local, self.name + str(self.level), None)
        if compressor is None:  # a zstandard compressor must not be used by two threads at a time
            import zstandard

            compressor = zstandard.ZstdCompressor(level=self.level, write_checksum=False, write_content_size=True)
            setattr(_local, self.name + str(self.level), compressor)
        result: bytes = compressor.compress(data)
        return result

    def decompress(self, data: bytes, limit: int) -> bytes:
        """The content of one block, at most `limit` bytes. Raises EnvbuildError when the block is damaged."""
        try:
            if self.name == "gzip":
                stream = zlib.decompressobj()
                result = stream.decompress(data, limit)
                if not stream.eof:
                    raise EnvbuildError("a gzip block is cut short or larger than it may be")
                return result
            import zstandard

            if zstandard.frame_content_size(data) > limit:
                raise EnvbuildError("a zstd block is larger than it may be")
            return zstandard.ZstdDecompressor().decompress(data, max_output_size=limit)
        except zlib.error as error:
            raise EnvbuildError(f"a gzip block is damaged: {error}") from error
        except Exception as error:
            if isinstance(error, EnvbuildError):
                raise
            raise EnvbuildError(f"a {self.name} block is damaged: {error}") from error


_local = threading.local()
