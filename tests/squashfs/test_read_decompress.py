"""Blocks of a squashfs file in every codec: unpacked within their size, or refused."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from envbuild.squashfs.codec import IDS
from envbuild.squashfs.read.decompress import CorruptDataError, find_decompressor
from tests.support.examples import examples

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "codec", ["gzip", "lz4", "zstd", *(pytest.param(codec, marks=pytest.mark.slow_unit) for codec in ("lzma", "xz"))]
)
def test_a_block_with_a_wrong_size_is_refused(codec):
    """A frame that declares 1 GiB, or a few bytes that unpack to 64 MiB: refused before the memory is taken."""
    import lzma

    import lz4.block

    big = bytes(64 << 20)
    bombs = {
        "gzip": lambda: zlib.compress(big),
        "zstd": lambda: zstandard.ZstdCompressor().compress(big),
        "lzma": lambda: lzma.compress(big, lzma.FORMAT_ALONE, preset=0),
        "xz": lambda: lzma.compress(big, check=lzma.CHECK_CRC32, preset=0),
        "lz4": lambda: lz4.block.compress(big, store_size=False),
    }
    bomb = bombs[codec]()
    unpack = find_decompressor(IDS[codec], "x")
    tracemalloc.start()
    try:
        with pytest.raises(CorruptDataError):
            unpack(bomb, 8192)
        with pytest.raises(CorruptDataError):
            unpack(b"\x00garbage" * 9, 8192)
        with pytest.raises(CorruptDataError):
            unpack(b"", 8192)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_bytes_behind_a_frame_are_damage():
    """Of one file, unsquashfs and squashfuse end with an error there, and the kernel does not."""
    frame = zstandard.ZstdCompressor().compress(b"word" * 100)
    unpack = find_decompressor(IDS["zstd"], "x")
    assert unpack(frame, 400) == b"word" * 100
    with pytest.raises(CorruptDataError, match="1 bytes of unused data"):
        unpack(frame + b"\0", 400)


@examples(300)
@given(data=st.binary(max_size=200), limit=st.integers(1, 9000))
def test_lzo_of_anything(data, limit):
    """Any block: unpacked within the limit, or refused."""
    unpack = find_decompressor(IDS["lzo"], "x")
    with contextlib.suppress(CorruptDataError):
        assert len(unpack(data, limit)) <= limit


def test_lzo_by_hand():
    """Instructions of every kind, written by hand from the description of the format."""
    unpack = find_decompressor(IDS["lzo"], "x")
    end = b"\x11\x00\x00"
    assert unpack(bytes([17 + 4]) + b"abcd" + end, 99) == b"abcd"
    run = bytes([0, 1]) + b"0123456789abcdefghi"  # 15 + 1 + 3 literals
    assert unpack(run + end, 99) == b"0123456789abcdefghi"
    assert unpack(run + bytes([0x20 | 3]) + struct.pack("<H", (19 - 1) << 2 | 2) + b"XY" + end, 99) == (
        b"0123456789abcdefghi01234XY"
    )
    assert unpack(bytes([17 + 4]) + b"abcd" + bytes([0x40 | 0 << 2 | 0, 0]) + end, 99) == b"abcdddd"  # a pattern
    assert unpack(bytes([17 + 4]) + b"abcd" + bytes([0xE0 | 1 << 2 | 1, 0]) + b"!" + end, 99) == b"abcdcdcdcdcd!"
    with pytest.raises(CorruptDataError):
        unpack(bytes([17 + 4]) + b"abcd" + bytes([0x40 | 7 << 2, 0]) + end, 99)  # before the beginning
    with pytest.raises(CorruptDataError):
        unpack(run + bytes([0x20, 0, 255]) + struct.pack("<H", 0) + end, 99)  # 541 bytes where 99 may be
