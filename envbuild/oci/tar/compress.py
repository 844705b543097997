"""Compression of layer tars: gzip (isal), zstandard, none.

The bytes follow from the content and the libraries' versions alone, not from threads or the sizes of writes.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import IO

from envbuild.core.errors import SpecError

GZIP_LEVEL = 2  # of isal's 0..3; 3 takes a third more time for one percent
ZSTD_LEVEL = 3
BLOCK = 1 << 20  # gzip is made in blocks of this many bytes, so that threads do not change them


class HashingWriter:
    """Writer that counts and hashes what it writes to `file`: `size` in bytes, `sha256` in hex."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.hash = hashlib.sha256()
        self.size = 0

    def write(self, chunk: bytes) -> int:
        self.hash.update(chunk)
        self.size += len(chunk)
        return self.file.write(chunk)

    def flush(self) -> None:
        self.file.flush()

    @property
    def sha256(self) -> str:
        return self.hash.hexdigest()


class BlockWriter:
    """Writer to `file` in blocks of the same size, independent of the sizes of writes; `flush` writes the last one."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.waiting = bytearray()

    def write(self, chunk: bytes) -> int:
        self.waiting += chunk
        whole = len(self.waiting) - len(self.waiting) % BLOCK
        for start in range(0, whole, BLOCK):
            self.file.write(bytes(self.waiting[start : start + BLOCK]))
        del self.waiting[:whole]
        return len(chunk)

    def flush(self) -> None:
        self.file.write(bytes(self.waiting))
        self.waiting.clear()


@contextlib.contextmanager
def open_compressor(file: HashingWriter, compression: str, threads: int = 1) -> Iterator[IO[bytes]]:
    """Return a file to write into; what is written reaches `file` compressed as ``gzip``, ``zstd`` or ``none``.

    gzip contains no name and no time (RFC 1952); `threads` threads beside the caller compress it. Raises SpecError for
    another compression.
    """
    if compression == "none":
        yield file  # type: ignore[misc]  # only write() is used
    elif compression == "gzip":
        from isal import igzip_threaded

        stream = igzip_threaded.open(  # type: ignore[no-untyped-call]
            file, "wb", compresslevel=GZIP_LEVEL, threads=max(1, threads), block_size=BLOCK
        )
        with stream as gzip:
            blocks = BlockWriter(gzip)
            yield blocks  # type: ignore[misc]
            blocks.flush()
    elif compression == "zstd":
        import zstandard

        compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
        with compressor.stream_writer(file, closefd=False) as zstd:  # type: ignore[arg-type]
            yield zstd
    else:
        raise SpecError(f"no compression is called {compression!r}", hint="use gzip, zstd or none")
