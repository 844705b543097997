"""Blobs of layers that programs unpack to different bytes: by their first bytes, or by their media type."""

from __future__ import annotations

import gzip
import io
import tarfile
import time
import zlib
from itertools import pairwise

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from envbuild.net.registry.media_types import DOCKER, OCI
from envbuild.oci.tar.fields import LayerError
from envbuild.publish.one_reading import OneReading, compression_of_kind, may_be_header
from tests.support.local_registry import file, tar

pytestmark = pytest.mark.unit
LAYER = tar(file("opt/a", b"a" * 3000), file("opt/b", bytes(range(256)) * 40))
SKIPPED = b"\x50\x2a\x4d\x18"


def read(blob: bytes, compression: str, size: int = 1000) -> tuple[bytes, int]:
    """Return the bytes that were read, `size` at a time, and the number of them that was reported."""
    counted: list[int] = []
    stream = OneReading(io.BytesIO(blob), compression, counted.append)
    found = b""
    while piece := stream.read(size):
        found += piece
    return found, sum(counted)


def header(name: bytes, size: int) -> bytes:
    """Return the header of a tar whose name field has any bytes."""
    block = bytearray(tarfile.TarInfo("x").tobuf(tarfile.USTAR_FORMAT))
    block[:100] = name.ljust(100, b"\0")
    block[124:136] = b"%011o\0" % size
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def with_extra(content: bytes, extra: bytes) -> bytes:
    """Return a gzip member with a field of extra bytes in its header (RFC 1952, 2.3.1.1)."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = deflate.compress(content) + deflate.flush()
    end = zlib.crc32(content).to_bytes(4, "little") + len(content).to_bytes(4, "little")
    return b"\x1f\x8b\x08\x04" + bytes(6) + len(extra).to_bytes(2, "little") + extra + data + end


@given(st.integers(1, 4000), st.lists(st.integers(0, len(LAYER)), max_size=4))
def test_members_and_frames_that_follow_each_other_are_one_layer(size: int, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(LAYER)]
    parts = [LAYER[start:end] for start, end in pairwise(places)]
    for blob, compression in (
        (b"".join(map(gzip.compress, parts)), "gzip"),
        (b"".join(map(zstandard.compress, parts)), "zstd"),
        (zstandard.compress(LAYER) + SKIPPED + (5).to_bytes(4, "little") + b"table", "zstd"),
    ):
        assert read(blob, compression, size) == (blob, len(blob))


@pytest.mark.parametrize("size", [1, 7, 512, 1 << 20])
@pytest.mark.parametrize(
    ("between", "behind"),
    [(b"\0", b""), (bytes(511), b""), (b"", b"\0"), (b"", b"\x1f"), (b"", bytes(600)), (b"", b"text"), (b"x", b"")],
)
def test_what_is_between_members_or_behind_them_is_refused(between: bytes, behind: bytes, size: int) -> None:
    """``gzip -d -f -c`` passes it on, and Python's gzip skips zeros."""
    blob = gzip.compress(LAYER[:512]) + between + gzip.compress(LAYER[512:]) + behind
    with pytest.raises(LayerError, match="follows"):
        read(blob, "gzip", size)


@pytest.mark.parametrize("flag", [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80])
def test_a_member_with_flags_is_refused(flag: int) -> None:
    """pigz ends before a reserved flag, and reports success."""
    last = bytearray(gzip.compress(LAYER[512:]))
    last[3] |= flag
    with pytest.raises(LayerError, match="a header has more than fixed fields"):
        read(gzip.compress(LAYER[:512]) + last, "gzip")
    with pytest.raises(LayerError, match="a header has more than fixed fields"):
        read(bytes(last), "gzip")


@pytest.mark.parametrize("size", [1, 1000, 1 << 20])
def test_extra_fields_are_refused(size: int) -> None:
    """Of a header that comes in two pieces isa-l forgets the flags, and takes the rest for data."""
    with pytest.raises(LayerError, match="a header has more than fixed fields"):
        read(gzip.compress(LAYER[:512]) + with_extra(LAYER[512:], b"extra" * 1000), "gzip", size)


@pytest.mark.parametrize("cut", [1, 4, 8, 9, 100])
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_member_that_is_not_whole_is_refused(cut: int, size: int) -> None:
    with pytest.raises(LayerError, match="is not whole"):
        read((gzip.compress(LAYER[:512]) + gzip.compress(LAYER[512:]))[:-cut], "gzip", size)


def test_many_small_members_are_read_in_time() -> None:
    """What is behind each of them was copied: a blob of 4 MiB took a minute."""
    blob = gzip.compress(LAYER[:512]) + gzip.compress(b"") * 60_000
    begin = time.process_time()
    assert read(blob, "gzip", 1 << 20)[1] == len(blob)
    assert time.process_time() - begin < 1.5  # 0.2 s; 3.3 s with the copies


def test_members_that_become_much_longer() -> None:
    blob = gzip.compress(bytes(40 << 20)) + gzip.compress(b"") + gzip.compress(bytes(5 << 20))
    assert read(blob, "gzip", 1 << 18) == (blob, len(blob))


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_a_blob_that_is_a_tar_as_well_is_refused(size: int) -> None:
    """enroot before 4, and Docker before 23, know no zstd: they take it for a tar."""
    evil = tar(file("evil", b"x"))
    empty = zstandard.compress(b"")
    length = 512 - len(empty) - 8 + len(evil)
    first = header(empty + SKIPPED + length.to_bytes(4, "little"), 0)
    blob = first + evil + zstandard.compress(LAYER)
    assert zstandard.ZstdDecompressor().decompressobj(read_across_frames=True).decompress(blob) == LAYER
    with pytest.raises(LayerError, match="it is a tar as well"):
        read(blob, "zstd", size)


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_what_is_not_in_the_stated_compression_is_refused(compression: str, size: int) -> None:
    other = {"gzip": zstandard.compress(LAYER), "zstd": gzip.compress(LAYER)}[compression]
    for blob in (other, LAYER, b"", b"\x1f", SKIPPED + (1).to_bytes(4, "little") + b"x" + zstandard.compress(LAYER)):
        with pytest.raises(LayerError, match=f"it is not {compression}"):
            read(blob, compression, size)


def test_a_damaged_member_is_refused() -> None:
    blob = bytearray(gzip.compress(LAYER))
    blob[10:14] = b"\xff\xff\xff\xff"
    with pytest.raises(LayerError, match="a gzip member is damaged"):
        read(bytes(blob), "gzip")


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_headers_of_every_form_are_recognized(form: int) -> None:
    info = tarfile.TarInfo("nämé" * 12)
    info.size, info.mtime = 1 << 32, 7
    assert may_be_header(info.tobuf(form)[-512:])


@given(st.binary(min_size=148, max_size=148), st.binary(min_size=356, max_size=356))
def test_a_checksum_in_any_notation_is_recognized(before: bytes, behind: bytes) -> None:
    total = sum(before) + sum(behind) + 256
    signed = total - 256 * sum(byte > 127 for byte in before + behind)
    fields = [b"%06o\0 " % total, b" %o " % total, b"\0%o" % total, b"+AAAA/", b"\x80" + total.to_bytes(7, "big")]
    fields += [b"%o" % signed] if signed >= 0 else []
    for field in fields:
        assert may_be_header(before + field.ljust(8, b" ") + behind) or field.startswith(b"\x80")
    assert may_be_header(before + b"\x80" + total.to_bytes(7, "big") + behind)
    assert not may_be_header(before + b"%06o\0 " % (total + 1) + behind) or signed == total + 1


def test_media_types_of_both_formats() -> None:
    assert [compression_of_kind(kind) for kind in (OCI.layers["gzip"], DOCKER.layers["gzip"])] == ["gzip", "gzip"]
    assert compression_of_kind(OCI.layers["zstd"]) == "zstd"
    assert compression_of_kind(OCI.layers["none"]) == compression_of_kind("application/octet-stream") == ""
