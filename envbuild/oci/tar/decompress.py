"""The tar inside a layer's blob, unpacked while it is read from front to back.

The blob says itself how it is compressed, whatever its media type says: gzip (RFC 1952, of one member or of several as
eStargz has them, with zeros after them as GNU gzip takes them), zstd (RFC 8878, also of several frames, with skippable
ones between them), or not at all.
"""

from __future__ import annotations

import contextlib
import gzip
import queue
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envbuild.core.errors import InputError
from envbuild.oci.tar.chunks import PIECE, Pieces, Readable
from envbuild.oci.tar.fields import LayerError

PACKED = 1 << 18  # of a compressed stream, read at once
GZIP, ZSTD, SKIPPABLE = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x2a\x4d\x18"  # a skippable frame's first byte varies
BLOCK_MOST = 1 << 17  # what comes out of one block of a zstd frame (RFC 8878, 3.1.1.2.4)
AHEAD = 2  # pieces that are unpacked before they are wanted


class Begun:
    """A stream whose first bytes were read already."""

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


class Unpacked:
    """What pieces of content give, as a stream."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces, self.rest = pieces, b""

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end."""
        found, self.rest = self.rest or next(self.pieces, b""), b""
        if len(found) > size:
            found, self.rest = found[:size], found[size:]
        return found


def begun(stream: Readable) -> tuple[bytes, Begun]:
    """(the first four bytes, the whole stream)."""
    first = b""
    while len(first) < 4 and (chunk := stream.read(PACKED)):
        first += chunk
    return first[:4], Begun(first, stream)


def gunzip(stream: Begun) -> Iterator[bytes]:
    """The content of gzip members."""
    from isal import igzip

    with igzip.IGzipFile(fileobj=stream, mode="rb") as file:  # type: ignore[no-untyped-call]
        while piece := file.read(PIECE):
            yield piece


def unzstd(stream: Begun) -> Iterator[bytes]:
    """The content of zstd frames.

    The library is given the blocks that make up one piece at a time: four bytes of a frame can stand for 128 KiB, and
    its own reader takes a frame that was cut off for the end.
    """
    import zstandard

    source = Pieces(stream)
    what = "a zstd frame"
    library = zstandard.ZstdDecompressor()
    while magic := source.upto(4):
        if magic[1:] == SKIPPABLE and magic[0] >> 4 == 5:
            source.give(int.from_bytes(source.take(4, what), "little"), len, what)
            continue
        if magic != ZSTD:
            raise LayerError("something other than zstd follows its zstd frames")
        flags = source.take(1, what)
        single, size_flag = flags[0] >> 5 & 1, flags[0] >> 6
        rest = 1 - single + (0, 1, 2, 4)[flags[0] & 3] + (single, 2, 4, 8)[size_flag]
        parts = [magic, flags, source.take(rest, what)]
        frame, room, last = library.decompressobj(write_size=PIECE), PIECE, 0
        while not last:
            head = source.take(3, what)
            word = int.from_bytes(head, "little")
            last, kind, size = word & 1, word >> 1 & 3, word >> 3
            most = BLOCK_MOST if kind == 2 else size
            if size > BLOCK_MOST or kind == 3:
                raise LayerError("a block of its zstd frames is damaged")
            if most > room:
                yield frame.decompress(b"".join(parts))
                parts, room = [], PIECE
            parts += head, source.take(1 if kind == 1 else size, what)
            room -= most
        if flags[0] & 4:
            parts.append(source.take(4, what))
        yield frame.decompress(b"".join(parts))
        if not frame.eof:
            raise LayerError("a zstd frame is damaged")


def pieces(stream: Readable) -> Iterator[bytes]:
    """The uncompressed content of a blob, in pieces of at most 1 MiB. Raises LayerError for a damaged one."""
    import zstandard
    from isal import isal_zlib

    broken: Any = (EOFError, gzip.BadGzipFile, zlib.error, isal_zlib.error, zstandard.ZstdError)
    head, whole = begun(stream)
    try:
        if head[:2] == GZIP:
            yield from gunzip(whole)
        elif head == ZSTD or head[1:] == SKIPPABLE:
            yield from filter(None, unzstd(whole))
        else:
            while piece := whole.read(PIECE):
                yield piece
    except broken as error:
        raise LayerError(str(error)) from error


@contextlib.contextmanager
def unpacking(stream: Readable, *, ahead: bool = True) -> Iterator[Unpacked]:
    """The uncompressed content of the blob that `stream` gives.

    `ahead`: the stream is read and unpacked in a thread of its own, a little before its content is wanted. What goes
    wrong comes up while the content is read: LayerError for a damaged blob, and what `stream` raises.
    """
    found = pieces(stream)
    if not ahead:
        yield Unpacked(found)
        return
    waiting: queue.Queue[bytes | BaseException] = queue.Queue(AHEAD)
    stop = threading.Event()

    def work() -> None:
        try:
            for piece in found:
                waiting.put(piece)
                if stop.is_set():
                    return
            waiting.put(b"")
        except BaseException as error:
            waiting.put(error)

    def arriving() -> Iterator[bytes]:
        while piece := waiting.get():
            if isinstance(piece, BaseException):
                raise piece
            yield piece

    thread = threading.Thread(target=work, name="unpack", daemon=True)
    thread.start()
    try:
        yield Unpacked(arriving())
    finally:
        stop.set()
        while thread.is_alive():
            with contextlib.suppress(queue.Empty):
                waiting.get(timeout=0.01)  # it may wait for room
        thread.join()


@contextlib.contextmanager
def reading(path: Path) -> Iterator[Unpacked]:
    """The uncompressed content of the blob in a file."""
    with path.open("rb", buffering=0) as file, unpacking(file) as stream:
        yield stream


@contextlib.contextmanager
def sound(what: str) -> Iterator[None]:
    """What is wrong with the layer called `what`, told with its name, as an InputError."""
    try:
        yield
    except LayerError as error:
        raise InputError(f"{what} cannot be unpacked: {error.message}", error.hint) from error
