"""Blobs of layers that all programs unpack to the same bytes.

A blob can be two layers: programs decide by its first bytes (Docker, containerd), by its media type (enroot 4), or take
all of it for gzip (enroot 3), and ``gzip -d -f -c`` passes on unchanged what is not gzip: at the begin, and between two
members. What is passed on is read as a tar.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from typing import Any

from envbuild.net.registry.media_types import DOCKER, OCI
from envbuild.oci.sources.base import RawStream
from envbuild.oci.tar.chunks import Readable
from envbuild.oci.tar.decompress import GZIP, ZSTD
from envbuild.oci.tar.fields import LayerError

BEGINS = {"gzip": GZIP, "zstd": ZSTD}  # a blob without compression has the digest of its layer: it is not read
BLOCK = 512  # bytes of a header of a tar
CHECKSUM = slice(148, 156)
# As GNU tar reads the field (src/list.c, from_header): octal, base 64 behind a sign, base 256 behind a high bit.
OCTAL, SIGNED = re.compile(rb"[\s\0]*([0-7]+)"), re.compile(rb"[\s\0]*[+-][A-Za-z0-9+/\s\0]+")
PLAIN, HEADER, TRAILER = GZIP + b"\x08\0", 10, 8  # begin of a header without flags; bytes of both (RFC 1952, 2.3)
PIECE = 1 << 20  # bytes that a member unpacks to at a time
SLICE = 1 << 13  # bytes of a blob that are followed at a time: what is behind a member is copied


def compression_of_kind(kind: str) -> str:
    """Return the compression that a media type of layers states; empty for none and for an unknown type."""
    return next((name for name in BEGINS for types in (OCI, DOCKER) if types.layers.get(name) == kind), "")


class OneReading(RawStream):
    """The bytes of a blob with a `compression` (gzip, zstd), which are checked while they are read; `add` gets the
    number of them. `read` raises LayerError for a blob that another program could unpack to other bytes."""

    def __init__(self, stream: Readable, compression: str, add: Callable[[int], object]) -> None:
        self.stream, self.compression, self.add = stream, compression, add
        self.first = b""  # bytes of the blob, until BLOCK of them are known
        self.member: Any = None  # which unpacks the data of a gzip member; None: a header or a trailer is read,
        self.field, self.needs = b"", HEADER  # of which these bytes are known, of so many
        self.fault: LayerError | None = None

    def read(self, size: int = -1) -> bytes:
        if self.fault:  # its reader continues to the end, for the digest
            raise self.fault
        found = self.stream.read(size)
        self.add(len(found))
        try:
            if len(self.first) < BLOCK:
                self._check_first(found)
            if self.compression == "gzip":
                for start in range(0, len(found) or 1, SLICE):
                    self._check_members(found[start : start + SLICE])
        except LayerError as error:
            self.fault = error
            raise
        return found

    def _check_first(self, found: bytes) -> None:
        self.first += found[: BLOCK - len(self.first)]
        ended = not found
        magic = BEGINS[self.compression]
        if (ended or len(self.first) >= len(magic)) and not self.first.startswith(magic):
            raise LayerError(f"it is not {self.compression}, as its media type states")
        if len(self.first) == BLOCK and may_be_header(self.first):
            raise LayerError("it is a tar as well, for programs that do not know its compression")

    def _check_members(self, found: bytes) -> None:
        """Follow the members: each begins where the one before ends, and nothing is behind the last.

        A header has the fixed fields alone, as Docker, podman and envbuild write it. Programs differ in other ones:
        pigz ends at a reserved flag with success, isa-l forgets the flags of a header that comes in two pieces."""
        if not found and (self.member or self.field or self.needs == TRAILER):
            raise LayerError("its last gzip member is not whole, or something that is not gzip follows it")
        while found:
            if self.member:
                try:
                    self.member.decompress(found, PIECE)
                except zlib.error as error:
                    raise LayerError(f"a gzip member is damaged: {error}") from None
                found = self.member.unused_data if self.member.eof else self.member.unconsumed_tail
                if self.member.eof:
                    self.member, self.needs = None, TRAILER
                continue
            missing = self.needs - len(self.field)
            self.field, found = self.field + found[:missing], found[missing:]
            if len(self.field) == self.needs:
                self._end_field()

    def _end_field(self) -> None:
        if self.needs == TRAILER:  # the reader of the layer compares it
            self.needs = HEADER
        elif self.field.startswith(PLAIN):
            self.member = zlib.decompressobj(-zlib.MAX_WBITS)
        else:
            raise LayerError("something that is not gzip follows a gzip member, or a header has more than fixed fields")
        self.field = b""


def may_be_header(block: bytes) -> bool:
    """Return whether 512 bytes are the header of an entry of a tar, for the most tolerant of programs."""
    field = block[CHECKSUM]
    if SIGNED.fullmatch(field):
        return True
    octal = OCTAL.match(field)
    stated = int(octal[1], 8) if octal else int.from_bytes(field, "big") & ~(0x80 << 56)
    rest = block[: CHECKSUM.start] + block[CHECKSUM.stop :]
    unsigned = sum(rest) + 8 * ord(" ")
    return stated in (unsigned, unsigned - 256 * sum(byte > 127 for byte in rest))
