"""Layers that unpack to far more than their size: refused, in little memory, and a large file of zeros is not one."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest
import zstandard

from envbuild.core import bombs
from envbuild.core.errors import InputError
from envbuild.lock.base_image.file_tree import ImageTree, _apply_checked
from envbuild.oci.layers.apply import apply_layers
from envbuild.oci.sources.read_layer import read_layer, read_unnamed_layer
from envbuild.oci.tar.decompress import open_decompressed
from envbuild.oci.tar.reader import LayerError
from envbuild.oci.tar.unpack_limit import ForeignTarSink, open_limited
from tests.support import tars as kit
from tests.support.layer_streams import MIB, TAR, WRONG, Count
from tests.support.tars import END, header, octal, padded, pax, source

pytestmark = pytest.mark.unit


def zeros_tar(size: int, compressor: object) -> bytes:
    """Return the blob of a tar with one file of so many zeros."""
    parts = [compressor.compress(kit.header(b"zeros", size=kit.octal(size)))]  # type: ignore[attr-defined]
    piece = bytes(16 * MIB)
    parts += [compressor.compress(piece) for _ in range(size // len(piece))]  # type: ignore[attr-defined]
    return b"".join([*parts, compressor.compress(kit.END), compressor.flush()])  # type: ignore[attr-defined]


@pytest.mark.slow_unit
def test_bombs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A blob that would unpack to many times what it has; one of honest size passes."""
    from isal import isal_zlib

    assert bombs.SUSPECT == 1 << 30
    monkeypatch.setattr(bombs, "SUSPECT", 64 * MIB)
    monkeypatch.setattr(bombs, "EMPTY", 0)
    for compressor in (isal_zlib.compressobj(1, wbits=31), zstandard.ZstdCompressor().compressobj()):
        blob = zeros_tar(80 * MIB, compressor)
        assert len(blob) * 200 < 64 * MIB
        sink = Count()
        with pytest.raises(InputError, match="200 times as many: it is a bomb"):
            read_layer(source(blob, b""), [sink])
        assert sink.size <= 65 * MIB
        with pytest.raises(InputError, match="more than 9999 bytes, which is the limit"):
            read_layer(source(blob, b""), [Count()], limit=9999)
        with pytest.raises(InputError, match="it is a bomb"):
            read_unnamed_layer(replace(source(blob, b""), diff_id="", digest=""), sink := Count())
        assert sink.size <= 65 * MIB
    with pytest.raises(InputError, match="its tar is sha256"):  # read to its end
        read_layer(source(blob, b""), [sink := Count()], ratio=0)
    assert sink.size == 80 * MIB


@pytest.mark.slow_unit
def test_a_bomb_in_a_part_of_a_layer_is_refused_when_it_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the rest is: a blob of 5 GB might otherwise unpack to 1 TB first."""
    monkeypatch.setattr(bombs, "SUSPECT", 16 * MIB)
    monkeypatch.setattr(bombs, "EMPTY", 0)
    rest, zeros, compress = os.urandom(14 * MIB), 96 * MIB, zstandard.ZstdCompressor().compress
    blob = compress(kit.header(b"zeros", size=kit.octal(zeros)) + bytes(zeros))
    blob += compress(kit.header(b"rest", size=kit.octal(len(rest))) + rest + kit.END)
    assert len(blob) * 8 > zeros + len(rest)  # as a whole it is none
    with pytest.raises(InputError, match="more than 8 times as many: it is a bomb"):
        read_layer(source(blob, b""), [sink := Count()], ratio=8)
    assert sink.size < zeros


@pytest.mark.slow_unit
def test_a_large_file_of_zeros_is_no_bomb_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk image, or a database that was allocated in advance, at the begin of a layer."""
    assert bombs.EMPTY == 4 << 30
    monkeypatch.setattr(bombs, "SUSPECT", 16 * MIB)
    monkeypatch.setattr(bombs, "EMPTY", 64 * MIB)
    blob = zeros_tar(48 * MIB, zstandard.ZstdCompressor().compressobj())
    assert len(blob) * 200 < 16 * MIB
    with pytest.raises(InputError, match="its tar is sha256"):  # read to its end
        read_layer(source(blob, b""), [sink := Count()])
    assert sink.size == 48 * MIB
    bomb = zeros_tar(160 * MIB, zstandard.ZstdCompressor().compressobj())
    with pytest.raises(InputError, match="it is a bomb"):
        read_layer(source(bomb, b""), [sink := Count()])
    assert sink.size < 100 * MIB


def test_zeros_that_no_file_announces_are_a_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bombs, "SUSPECT", 2 * MIB)
    blob = zstandard.ZstdCompressor().compress(kit.file(b"small", b"text") + kit.END + bytes(16 * MIB))
    with pytest.raises(InputError, match="it is a bomb"):
        read_layer(source(blob, b""), [Count()])


def test_a_layer_beyond_the_limit_is_not_read_to_its_end() -> None:
    read: list[int] = []
    tar = TAR + bytes(8 * MIB)  # far more than what is read ahead

    class Counted(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            chunk = super().read(size)
            read.append(len(chunk))
            return chunk

    @contextlib.contextmanager
    def opened() -> Iterator[IO[bytes]]:
        yield Counted(tar)

    wrong = replace(source(tar, tar, digest=WRONG), open=opened)
    with pytest.raises(InputError, match="limit"):
        read_layer(wrong, [Count()], limit=9999)
    assert sum(read) < len(tar)


def test_blocks_of_high_ratio_are_read_in_pieces() -> None:
    """Four bytes of a zstd frame can be 128 KiB: a megabyte of them comes in pieces too."""
    block = struct.pack("<I", (1 << 17) << 3 | 1 << 1)[:3] + b"\0"
    last = struct.pack("<I", 1)[:3]
    blob = b"\x28\xb5\x2f\xfd\x00\x58" + block * 2000 + last  # a window of 2 MiB
    with open_decompressed(io.BytesIO(blob)) as stream:
        sizes = [len(piece) for piece in iter(lambda: stream.read(1 << 30), b"")]
    assert sum(sizes) == 2000 << 17 and max(sizes) <= MIB


def test_large_windows_are_refused() -> None:
    blob = b"\x28\xb5\x2f\xfd\x00\xff" + b"\x01\0\0"  # a window of nearly 4 TiB
    with pytest.raises(LayerError), open_decompressed(io.BytesIO(blob)) as stream:
        stream.read(1)


def test_every_reader_of_a_blob_refuses_a_bomb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those that unpack a base image and those that read its tree do not count what headers announce."""
    monkeypatch.setattr(bombs, "SUSPECT", 2 * MIB)
    monkeypatch.setattr(bombs, "EMPTY", 4 * MIB)
    blob = zeros_tar(32 * MIB, zstandard.ZstdCompressor().compressobj())
    for packed in (len(blob), 0):
        with pytest.raises(LayerError, match="it is a bomb"), open_limited(io.BytesIO(blob), packed) as stream:
            read = 0
            while piece := stream.read(MIB):
                read += len(piece)
        assert read < 10 * MIB
    small = zeros_tar(0, zstandard.ZstdCompressor().compressobj())
    with open_limited(io.BytesIO(small), len(small)) as stream:
        assert len(stream.read(MIB)) > 1000
    file = tmp_path / "layer"
    file.write_bytes(blob)
    (tmp_path / "tree").mkdir()
    with pytest.raises(InputError, match="it is a bomb"):
        apply_layers([file], tmp_path / "tree")
    tree = ImageTree()
    with pytest.raises(LayerError, match="it is a bomb"):
        _apply_checked(tree, file, hashlib.sha256(blob).hexdigest())


def test_a_hole_of_a_sparse_file_counts_where_it_is_unpacked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The layer of the tree has its zeros: 300 bytes would keep a build busy for hours."""
    monkeypatch.setattr(bombs, "SUSPECT", 2 * MIB)
    monkeypatch.setattr(bombs, "EMPTY", 4 * MIB)
    for size in (3 * MIB, 32 * MIB):
        records = [(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.realsize", b"%d" % size)]
        place = padded(b"2\n0\n1\n%d\n0\n" % size)
        archive = pax(*records) + header(b"s", size=octal(len(place) + 1)) + padded(place + b"x") + END
        (tmp_path / "layer.tar").write_bytes(archive)
        (tmp_path / f"tree-{size}").mkdir()
        with contextlib.nullcontext() if size == 3 * MIB else pytest.raises(InputError, match="it is a bomb"):
            apply_layers([tmp_path / "layer.tar"], tmp_path / f"tree-{size}")
    assert (tmp_path / f"tree-{3 * MIB}/s").stat().st_size == 3 * MIB


def test_a_hole_of_a_sparse_file_has_its_bytes_in_a_canonical_tar(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`verify --rebuild` writes one of a layer of the image, to name the first file that differs."""
    monkeypatch.setattr(bombs, "EMPTY", 4 * MIB)
    for size in (3 * MIB, 32 * MIB):
        records = [(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.realsize", b"%d" % size)]
        place = padded(b"2\n0\n1\n%d\n0\n" % size)
        archive = pax(*records) + header(b"s", size=octal(len(place) + 1)) + padded(place + b"x") + END
        with (
            (tmp_path / "file").open("wb") as file,
            contextlib.nullcontext() if size == 3 * MIB else pytest.raises(InputError, match="it is a bomb"),
        ):
            read_layer(source(archive, archive), [ForeignTarSink(file)])
        assert (tmp_path / "file").stat().st_size < 4 * MIB


def test_holes_of_all_layers_of_a_base_image_count_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bombs, "EMPTY", 4 * MIB)
    records = [(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.realsize", b"%d" % (3 * MIB))]
    place = padded(b"2\n0\n1\n%d\n0\n" % (3 * MIB))
    archive = pax(*records) + header(b"s", size=octal(len(place) + 1)) + padded(place + b"x") + END
    (tmp_path / "layer.tar").write_bytes(archive)
    (tmp_path / "tree").mkdir()
    with pytest.raises(InputError, match="it is a bomb"):
        apply_layers([tmp_path / "layer.tar"] * 2, tmp_path / "tree")
