"""Reading layers: every compression, wrong digests and sizes, and nothing left of refused layers."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import IO

import pytest
import zstandard

from envbuild.core.errors import EnvbuildError, InputError
from envbuild.oci.sources.base import SourceLayer
from envbuild.oci.sources.read_layer import LayerSize, read_layer, read_unnamed_layer
from envbuild.oci.tar.decompress import open_decompressed
from envbuild.oci.tar.member import Member
from envbuild.squashfs.pack.writer import PackWriter
from tests.support import tars as kit
from tests.support.layer_streams import MIB, TAR, WRONG, Count
from tests.support.tars import Drops, Recorder, source

pytestmark = pytest.mark.unit


GZIP = gzip.compress(TAR, 1)


def members(tar: bytes, size: int) -> bytes:
    """gzip of many members, as eStargz has it: the last one is empty and holds a number in its header."""
    pieces = b"".join(gzip.compress(tar[at : at + size], 1) for at in range(0, len(tar), size))
    footer = b"\x1f\x8b\x08\x04" + bytes(4) + b"\0\xff" + struct.pack("<H", 4) + b"SG\0\0" + b"\x01\0\0\xff\xff"
    return pieces + footer + bytes(8)


def frames(tar: bytes, size: int, **parameters: bool) -> bytes:
    """zstd of many frames between those that readers skip, as ``zstd:chunked`` has it."""
    table = struct.pack("<II", 0x184D2A50 + 15, 6) + b"tables"
    compressor = zstandard.ZstdCompressor(**parameters)  # type: ignore[arg-type]
    pieces = [compressor.compress(tar[at : at + size]) for at in range(0, len(tar), size)]
    return table + table.join(pieces) + struct.pack("<II", 0x184D2A50, 0)


def flushed(tar: bytes) -> bytes:
    """Return one frame of many blocks, of no stated size."""
    compressor = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    parts = [
        compressor.compress(tar[at : at + 5000]) + compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        for at in range(0, len(tar), 5000)
    ]
    return b"".join(parts) + compressor.flush()


FORMS = {
    "plain": lambda: TAR,
    "gzip": lambda: GZIP,
    "gzip with a name": lambda: named(TAR),
    "gzip members": lambda: members(TAR, 100_000),
    "gzip and zeros": lambda: GZIP + bytes(70_000),
    "zstd": lambda: zstandard.compress(TAR),
    "zstd with a sum": lambda: frames(TAR, len(TAR), write_checksum=True),
    "zstd frames": lambda: frames(TAR, 30_000),
    "zstd of no stated size": lambda: frames(TAR, 1_500_000, write_content_size=False),
    "zstd blocks": lambda: flushed(TAR),
}


def named(tar: bytes) -> bytes:
    buffer = io.BytesIO()
    with gzip.GzipFile("layer.tar", "wb", 1, buffer) as file:
        file.write(tar)
    return buffer.getvalue()


@cache
def packed(form: str) -> bytes:
    """Return the tar in one of the forms."""
    return FORMS[form]()


@pytest.mark.parametrize("form", FORMS)
def test_compressions(form: str) -> None:
    blob, one, two = packed(form), Recorder(), Recorder()
    assert read_layer(source(blob, TAR), [one, two]) == LayerSize(len(TAR), 19)
    wanted = kit.read(TAR)
    for found in (one, two):
        assert found.closed and found.members == wanted.members
        assert all(found.content(number) == wanted.content(number) for number in range(19))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ahead", [True, False])
def test_streams_that_come_in_small_pieces(form: str, ahead: bool) -> None:
    blob = packed(form)
    for most in (1, 77, 5000) if len(blob) < 1000 else (997,):
        with open_decompressed(Drops(blob, most), ahead=ahead) as stream:
            pieces = list(iter(lambda: stream.read(MIB), b""))
        assert b"".join(pieces) == TAR
        assert all(len(piece) <= MIB for piece in pieces)


@pytest.mark.slow_unit
def test_one_byte_at_a_time() -> None:
    tar = kit.small()
    for blob in (tar, gzip.compress(tar), members(tar, 999), zstandard.compress(tar), frames(tar, 999), flushed(tar)):
        with open_decompressed(Drops(blob, 1)) as stream:
            assert b"".join(iter(lambda: stream.read(100), b"")) == tar


@pytest.mark.slow_unit
@pytest.mark.parametrize("form", FORMS)
def test_truncated_blobs_are_refused(form: str) -> None:
    """For any declaration of the image whose digests and sizes match the data."""
    blob = packed(form)
    end = len(blob.rstrip(b"\0")) if form == "gzip and zeros" else len(blob)
    if form == "plain":
        end -= 4096
    for cut in (1, 4, 9, 1000, len(blob) // 2):
        found = Recorder()
        with pytest.raises(InputError, match=r"^layer 1 of 1 is malformed: it is sha256:"):
            read_layer(source(blob[: end - cut], TAR), [found])
        assert not found.closed


@pytest.mark.slow_unit
@pytest.mark.parametrize("form", FORMS)
def test_data_after_the_end_is_refused(form: str) -> None:
    blob = packed(form)
    for more in (b"x", b"garbage" * 100, kit.file(b"evil") + kit.END, b"\x1f\x8b", b"PK\3\4" * 10, bytes(512) + b"x"):
        found = Recorder()
        with pytest.raises(InputError, match="layer 1 of 1 is malformed: it is sha256:"):
            read_layer(source(blob + more, TAR), [found])
        assert not found.closed


def test_a_second_tar_after_the_first() -> None:
    """Programs that stop at the end of a tar would not see it."""
    for blob in (GZIP + GZIP, zstandard.compress(TAR) * 2, TAR + TAR):
        with pytest.raises(InputError, match="continues after its end"):
            read_layer(source(blob, TAR + TAR), [Recorder()])


@pytest.mark.parametrize("form", FORMS)
def test_wrong_digests_and_sizes_are_refused(form: str) -> None:
    blob = packed(form)
    for layer, message in (
        (source(blob, TAR, digest=WRONG), "its blob is sha256:[0-9a-f]{64}, and its image names sha256:000"),
        (source(blob, TAR, diff_id=WRONG), "its (tar|blob) is sha256:[0-9a-f]{64}, and its image names sha256:000"),
        (source(blob, TAR, size=len(blob) - 1), "larger than the .* bytes that its image names"),
        (source(blob, TAR, size=1), "larger than the 1 bytes"),
        (source(blob, TAR, size=len(blob) + 1), "bytes, and its image names"),
    ):
        found = Recorder()
        with pytest.raises(InputError, match=message):
            read_layer(layer, [found])
        assert not found.closed


def test_digests_and_sizes_that_are_unknown_are_not_checked() -> None:
    blob = GZIP
    sound = source(blob, TAR)
    assert read_layer(SourceLayer(sound.diff_id, "", 0, "x", sound.open), [Recorder()]).members == 19


def test_a_blob_of_no_bytes_ends_there() -> None:
    """A layer with the digest of empty content may have size 0; what is sent for it may have no end."""

    class Endless:
        count = 0

        def read(self, size: int) -> bytes:
            self.count += size
            assert self.count < 64 << 20
            return bytes(size)

    @contextlib.contextmanager
    def opened() -> Iterator[IO[bytes]]:
        yield Endless()  # type: ignore[misc]

    empty = f"sha256:{hashlib.sha256().hexdigest()}"
    with pytest.raises(InputError, match="larger than the 0 bytes"):
        read_layer(SourceLayer(empty, empty, 0, "x", opened), [Recorder()])


def test_digests_of_other_kinds() -> None:
    digest = "sha512:" + hashlib.sha512(TAR).hexdigest()
    assert read_layer(source(TAR, TAR, digest=digest), [Recorder()]).members == 19
    for wrong in ("md5:00", "sha256", "sha256:", "shake_128:00", "x"):
        with pytest.raises(InputError, match="of a kind that envbuild does not support"):
            read_layer(source(TAR, TAR, diff_id=wrong), [Recorder()])


def test_layers_without_a_name() -> None:
    """A Docker Engine does not always name the layer that it sends; where it names the blob, that is checked."""
    named = "sha256:" + hashlib.sha256(TAR).hexdigest()
    for blob, digest in ((TAR, ""), (TAR, named), (GZIP, "")):
        layer = replace(source(blob, TAR), diff_id="", digest=digest, size=len(blob))
        assert read_unnamed_layer(layer, Count()) == named
    with pytest.raises(InputError, match="its blob is sha256"):
        read_unnamed_layer(replace(source(TAR, TAR), diff_id="", digest=WRONG), Count())
    with pytest.raises(InputError, match="larger than the 5 bytes"):
        read_unnamed_layer(replace(source(TAR, TAR), diff_id="", digest="", size=5), Count())


# what is left behind
def broken_layers() -> Iterator[SourceLayer]:
    blob = GZIP
    yield source(blob[:-100], TAR)
    yield source(blob, TAR, diff_id=WRONG)
    yield source(blob, TAR, digest=WRONG)
    yield source(blob + b"x", TAR)
    evil = kit.file(b"fine", b"x" * 100_000) + kit.file(b"../../evil", b"x") + kit.END
    yield source(evil, evil)


def test_refused_layers_leave_no_files(tmp_path: Path) -> None:
    threads = threading.active_count()
    for layer in broken_layers():
        with pytest.raises(InputError), PackWriter(tmp_path / "packs.x") as writer:
            read_layer(layer, [writer])
        assert list(tmp_path.iterdir()) == []
    assert threading.active_count() == threads


def test_errors_of_sinks_and_sources_pass_through() -> None:
    class Full(Count):
        def data(self, chunk: bytes) -> None:
            raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        read_layer(source(TAR, TAR), [Full()])

    class Gone:
        def read(self, size: int) -> bytes:
            raise ConnectionError("gone")

    @contextlib.contextmanager
    def opened() -> Iterator[IO[bytes]]:
        yield Gone()  # type: ignore[misc]

    sound = source(TAR, TAR)
    with pytest.raises(ConnectionError, match="gone"):
        read_layer(SourceLayer(sound.diff_id, sound.digest, 0, "x", opened), [Count()])
    evil = kit.header(b"x", b"3", device=b"0000001\x000000003\0") + kit.END
    with pytest.raises(EnvbuildError, match="no"):

        class Picky(Count):
            def begin(self, member: Member) -> None:
                raise EnvbuildError("no")

        read_layer(source(evil, evil), [Picky()])


def test_a_reader_that_stops_early() -> None:
    """The thread behind a stream ends with it."""
    threads = threading.active_count()
    with open_decompressed(io.BytesIO(gzip.compress(bytes(64 * MIB), 1))) as stream:
        stream.read(10)
    assert threading.active_count() == threads


SPARSE: Sequence[tuple[str, bytes]] = (("old", kit.old_sparse()), ("plain", kit.file(b"old", b"y" * 100)))


@pytest.mark.parametrize(("name", "tar"), SPARSE)
def test_packs(tmp_path: Path, name: str, tar: bytes) -> None:
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(PackWriter(tmp_path / name))
        assert read_layer(source(tar + kit.END, tar + kit.END), [writer]).members == 1
        stack.pop_all()
    assert [path.name for path in tmp_path.iterdir()] == [name]
