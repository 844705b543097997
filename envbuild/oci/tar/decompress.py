"""Decompression of a layer's blob while it is read from front to back.

The first bytes of the blob decide how it is compressed, not its media type: gzip (RFC 1952, of one member or of several
as eStargz has them, with zeros after them as GNU gzip takes them), zstd (RFC 8878, also of several frames, with
skippable ones between them), or not at all.
"""

from __future__ import annotations

import contextlib
import gzip
import queue
import threading
import zlib
from collections.abc import Iterator
from typing import Any

from envbuild.core.errors import InputError
from envbuild.oci.tar.chunks import CHUNK, ChunkReader, Readable
from envbuild.oci.tar.fields import LayerError

READ_SIZE = 1 << 18  # bytes of a compressed stream that are read at once
GZIP, ZSTD, SKIPPABLE = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x2a\x4d\x18"  # a skippable frame's first byte varies
MAX_BLOCK = 1 << 17  # what comes out of one block of a zstd frame (RFC 8878, 3.1.1.2.4)
READ_AHEAD = 2  # chunks that are unpacked in advance


class PrefixedStream:
    """Stream whose first bytes were read already."""

    def __init__(self, first: bytes, stream: Readable) -> None:
        self.first, self.stream = first, stream

    def read(self, size: int) -> bytes:
        if self.first:
            found, self.first = self.first[:size], self.first[size:]
            return found
        return self.stream.read(size)

    def readinto(self, buffer: Any) -> int:
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


class ChunkStream:
    """Stream of the content of an iterator of chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.chunks, self.rest = chunks, b""

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; none at the end."""
        found, self.rest = self.rest or next(self.chunks, b""), b""
        if len(found) > size:
            found, self.rest = found[:size], found[size:]
        return found


def read_magic(stream: Readable) -> tuple[bytes, PrefixedStream]:
    """Return (the first four bytes, the whole stream)."""
    first = b""
    while len(first) < 4 and (chunk := stream.read(READ_SIZE)):
        first += chunk
    return first[:4], PrefixedStream(first, stream)


def gunzip(stream: PrefixedStream) -> Iterator[bytes]:
    """Yield the content of gzip members."""
    from isal import igzip

    with igzip.IGzipFile(fileobj=stream, mode="rb") as file:  # type: ignore[no-untyped-call]
        while piece := file.read(CHUNK):
            yield piece


def unzstd(stream: PrefixedStream) -> Iterator[bytes]:
    """Yield the content of zstd frames. Raises LayerError.

    The library gets the blocks that make up one chunk at a time: four bytes of a frame can represent 128 KiB, and its
    own reader takes a truncated frame for the end.
    """
    import zstandard

    source = ChunkReader(stream)
    what = "a zstd frame"
    library = zstandard.ZstdDecompressor()
    while magic := source.read_up_to(4):
        if magic[1:] == SKIPPABLE and magic[0] >> 4 == 5:
            source.copy_to(int.from_bytes(source.read_exactly(4, what), "little"), len, what)
            continue
        if magic != ZSTD:
            raise LayerError("something other than zstd follows its zstd frames")
        flags = source.read_exactly(1, what)
        single, size_flag = flags[0] >> 5 & 1, flags[0] >> 6
        rest = 1 - single + (0, 1, 2, 4)[flags[0] & 3] + (single, 2, 4, 8)[size_flag]
        parts = [magic, flags, source.read_exactly(rest, what)]
        frame, room, last = library.decompressobj(write_size=CHUNK), CHUNK, 0
        while not last:
            head = source.read_exactly(3, what)
            word = int.from_bytes(head, "little")
            last, kind, size = word & 1, word >> 1 & 3, word >> 3
            most = MAX_BLOCK if kind == 2 else size
            if size > MAX_BLOCK or kind == 3:
                raise LayerError("a block of its zstd frames is damaged")
            if most > room:
                yield frame.decompress(b"".join(parts))
                parts, room = [], CHUNK
            parts += head, source.read_exactly(1 if kind == 1 else size, what)
            room -= most
        if flags[0] & 4:
            parts.append(source.read_exactly(4, what))
        yield frame.decompress(b"".join(parts))
        if not frame.eof:
            raise LayerError("a zstd frame is damaged")


def decompress(stream: Readable) -> Iterator[bytes]:
    """Yield the uncompressed content of a blob, in chunks of at most 1 MiB. Raises LayerError for a corrupt one."""
    import zstandard
    from isal import isal_zlib

    # OverflowError: of isal, a header of more than 512 KiB
    corrupt: Any = (EOFError, OverflowError, gzip.BadGzipFile, zlib.error, isal_zlib.error, zstandard.ZstdError)
    head, whole = read_magic(stream)
    try:
        if head[:2] == GZIP:
            yield from gunzip(whole)
        elif head == ZSTD or head[1:] == SKIPPABLE:
            yield from filter(None, unzstd(whole))
        else:
            while piece := whole.read(CHUNK):
                yield piece
    except corrupt as error:
        raise LayerError(str(error)) from error


@contextlib.contextmanager
def open_decompressed(stream: Readable, *, ahead: bool = True) -> Iterator[ChunkStream]:
    """Return the uncompressed content of the blob in `stream`.

    `ahead`: a thread reads and unpacks the stream, a little in advance. Errors are raised while the content is read:
    LayerError for a corrupt blob, and what `stream` raises.
    """
    found = decompress(stream)
    if not ahead:
        yield ChunkStream(found)
        return
    waiting: queue.Queue[bytes | BaseException] = queue.Queue(READ_AHEAD)
    stop = threading.Event()

    def unpack() -> None:
        try:
            for piece in found:
                waiting.put(piece)
                if stop.is_set():
                    return
            waiting.put(b"")
        except BaseException as error:
            waiting.put(error)

    def receive() -> Iterator[bytes]:
        while piece := waiting.get():
            if isinstance(piece, BaseException):
                raise piece
            yield piece

    thread = threading.Thread(target=unpack, name="unpack", daemon=True)
    thread.start()
    try:
        yield ChunkStream(receive())
    finally:
        stop.set()
        while thread.is_alive():
            with contextlib.suppress(queue.Empty):
                waiting.get(timeout=0.01)  # the thread may be waiting for room in the queue
        thread.join()


@contextlib.contextmanager
def convert_layer_errors(what: str) -> Iterator[None]:
    """Turn a LayerError of the layer called `what` into an InputError that names it."""
    try:
        yield
    except LayerError as error:
        raise InputError(f"{what} cannot be unpacked: {error.message}", error.hint) from error
