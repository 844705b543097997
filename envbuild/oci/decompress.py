"""The tar inside a layer's blob, read once from front to back.

The blob says itself how it is compressed: gzip (RFC 1952, also of several members), zstd (RFC 8878, also of several
frames with skippable ones between them), or not at all.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from envbuild.errors import InputError

CHUNK = 1 << 20
ZSTD_CHUNK = 1 << 15  # compressed; all of what is in it comes at once
GZIP, ZSTD, SKIPPABLE = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x2a\x4d\x18"  # a skippable frame's first byte varies


class Forward:
    """A stream as the file that `tarfile` reads members from: it only ever goes forward.

    tarfile's own stream mode copies its whole buffer for every header, so that a buffer of useful size makes it slow.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.position, self.last = stream, 0, b""

    def tell(self) -> int:
        return self.position

    def seek(self, target: int) -> int:
        if target < self.position:
            raise tarfile.StreamError("a layer is read forwards only")
        while self.position < target and self.read(min(CHUNK, target - self.position)):
            pass
        return self.position

    def read(self, size: int) -> bytes:
        self.last = self.stream.read(size)
        self.position += len(self.last)
        return self.last


class Pieces(io.RawIOBase):
    """A stream of what an iterator gives."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces, self.rest = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.rest = self.rest or next(self.pieces, b"")
        size = min(len(buffer), len(self.rest))
        buffer[:size], self.rest = self.rest[:size], self.rest[size:]
        return size


def frames(file: IO[bytes]) -> Iterator[bytes]:
    """The content of zstd frames. The library's own reader takes a frame that was cut off for the end."""
    import zstandard

    frame = None
    while chunk := file.read(ZSTD_CHUNK):
        while chunk:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            if content := frame.decompress(chunk):
                yield content
            chunk = b""
            if frame.eof:
                chunk, frame = frame.unused_data, None
    if frame:
        raise EOFError("it ends in the middle")


@contextlib.contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """The uncompressed content of a layer's blob. What is wrong with it comes up while it is read: see `sound`."""
    with contextlib.ExitStack() as stack:
        with path.open("rb") as file:
            head = file.read(4)
        raw: Any
        if head[:2] == GZIP:
            from isal import igzip_threaded

            raw = stack.enter_context(igzip_threaded.open(path, "rb", block_size=CHUNK))  # type: ignore[no-untyped-call]
        elif head == ZSTD or head[1:] == SKIPPABLE:
            raw = Pieces(frames(stack.enter_context(path.open("rb"))))
        else:
            raw = stack.enter_context(path.open("rb", buffering=0))
        yield cast("IO[bytes]", io.BufferedReader(raw, CHUNK))


def entries(stream: IO[bytes]) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """The entries of a tar, each with the archive that gives its content until the next one is asked for.

    Raises tarfile.TarError for what is no tar, or ends in the middle.
    """
    forward = Forward(stream)
    file = cast("IO[bytes]", forward)
    try:
        tar = tarfile.open(fileobj=file, mode="r:", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
    except tarfile.ReadError:
        if forward.position == 0:
            return  # an empty archive, without even its end
        raise
    while (entry := tar.next()) is not None:
        yield tar, entry
        tar.members.clear()  # type: ignore[attr-defined]  # it would remember all of them, to be able to go back
    # tarfile takes half a header, and one that makes no sense, for the end of the archive.
    if forward.last.strip(b"\0"):
        raise tarfile.ReadError("it ends in the middle")


@contextlib.contextmanager
def sound(what: str) -> Iterator[None]:
    """What goes wrong while the layer called `what` is read, as an InputError."""
    import zstandard
    from isal import isal_zlib

    broken: Any = (
        tarfile.TarError,
        EOFError,
        gzip.BadGzipFile,
        zlib.error,
        isal_zlib.error,
        zstandard.ZstdError,
    )
    try:
        yield
    except broken as error:
        hint = "use another image, or have whoever made it push it again"
        raise InputError(f"{what} cannot be unpacked: {error}", hint=hint) from error
