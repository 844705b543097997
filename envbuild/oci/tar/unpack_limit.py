"""The content of a layer's blob, up to what is a bomb. A reader that knows the headers of the tar has a closer limit
(`envbuild.oci.sources.read_layer`)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from envbuild.core import bombs
from envbuild.core.regular_file import open_regular
from envbuild.core.text import amount
from envbuild.oci.tar.chunks import Readable
from envbuild.oci.tar.decompress import open_decompressed
from envbuild.oci.tar.fields import LayerTooLargeError
from envbuild.oci.tar.writer import TarSink


class CountedStream:
    """Stream that counts the bytes that were read of it."""

    def __init__(self, stream: Readable) -> None:
        self.stream, self.size = stream, 0

    def read(self, size: int) -> bytes:
        chunk = self.stream.read(size)
        self.size += len(chunk)
        return chunk


class LimitedContent:
    """Content of a blob of `packed` bytes (0: unknown). Files of zeros are real, so it may have `bombs.EMPTY` more."""

    def __init__(self, content: Readable, blob: CountedStream, packed: int) -> None:
        self.content, self.blob, self.packed, self.size = content, blob, packed, 0

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; none at the end. Raises LayerTooLargeError."""
        piece = self.content.read(size)
        self.add(len(piece))
        return piece

    def add(self, count: int) -> None:
        """Count bytes of it; also those of a hole, which are read later as zeros. Raises LayerTooLargeError."""
        self.size += count
        check_ratio(self.size - bombs.EMPTY, self.packed or self.blob.size, self.blob.size)


def check_ratio(size: int, packed: int, read: int, ratio: int = bombs.RATIO) -> None:
    """Check that a blob of `packed` bytes, of which `read` were read, may unpack to `size` bytes. Raises
    LayerTooLargeError.

    Nor may a part of it unpack to so much more: a large bomb is not read to 200 times its size."""
    if size > bombs.SUSPECT and size > min(ratio * packed, bombs.most_unpacked(read, ratio)):
        found = packed if size > ratio * packed else read
        raise LayerTooLargeError(f"its {found} bytes unpack to more than {ratio} times as many: it is a bomb")


class HoleCount:
    """The bytes in the holes of sparse files, of one layer or of all layers of an image."""

    def __init__(self) -> None:
        self.size = 0

    def add(self, size: int) -> None:
        """Count a hole. Raises LayerTooLargeError for more than what real files have."""
        self.size += size
        if self.size > bombs.EMPTY:
            raise LayerTooLargeError(f"the holes of its files have more than {amount(bombs.EMPTY)}: it is a bomb")


class ForeignTarSink(TarSink):
    """`TarSink` for a layer that another program wrote. A hole of a sparse file has no byte in that, and all of its
    bytes in a canonical tar: 300 bytes may be 4 TiB, on the disk or for a digest."""

    def __init__(self, file: IO[bytes] | None = None) -> None:
        super().__init__(file)
        self.holes = HoleCount()

    def zeros(self, count: int) -> None:
        """Write a run of zero bytes. Raises LayerTooLargeError."""
        self.holes.add(count)
        super().zeros(count)


@contextlib.contextmanager
def open_limited(stream: Readable, packed: int) -> Iterator[LimitedContent]:
    """Return the uncompressed content of the blob in `stream`, of `packed` bytes (0: unknown). Raises LayerError, also
    for a bomb, where that begins."""
    blob = CountedStream(stream)
    with open_decompressed(blob) as content:
        yield LimitedContent(content, blob, packed)


@contextlib.contextmanager
def open_blob_file(path: Path) -> Iterator[LimitedContent]:
    """Return the uncompressed content of the blob in a file, as `open_limited` does."""
    with open_regular(path, buffering=0) as file, open_limited(file, os.fstat(file.fileno()).st_size) as content:
        yield content
