"""The blob of a layer that has the blocks of its pack as they are."""

from __future__ import annotations

import hashlib
import io
import os
import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from envbuild.core.errors import EnvbuildError
from envbuild.oci.tar.decompress import decompress
from envbuild.oci.tar.member import Kind, Member
from envbuild.squashfs.pack.file import Pack
from envbuild.squashfs.pack.frame_writer import Shared, check_shared, raw_blocks
from envbuild.squashfs.pack.layer_frames import shared_size, write_layer
from tests.support.packs import file, folder, gone, hard, pack, symlink
from tests.support.tars import written_tar
from tests.support.tools import require_tools

pytestmark = pytest.mark.unit

BLOCK = 4096
TEXT = b"".join(b"line %d of a text\n" % number for number in range(3000))  # 13 blocks that shrink
NOISE = random.Random(1).randbytes(50_000)  # 12 blocks that do not
Layer = list[tuple[Member, bytes]]


def blob_of(made: Pack) -> tuple[bytes, str, list[Shared]]:
    out = io.BytesIO()
    diff_id, shared = write_layer(made, out)
    return out.getvalue(), diff_id, shared


def unpacked(blob: bytes) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(blob), read_across_frames=True) as stream:
        return stream.read()


def check(layer: Layer, made: Pack) -> tuple[bytes, list[Shared]]:
    """Check that a blob is the layer, and that it has the bytes of the pack where it states that."""
    blob, diff_id, shared = blob_of(made)
    wanted, stored = written_tar(layer), made.path.read_bytes()
    assert unpacked(blob) == wanted == b"".join(decompress(io.BytesIO(blob)))
    assert diff_id == f"sha256:{hashlib.sha256(wanted).hexdigest()}"
    check_shared(shared, len(stored), len(blob))
    for part in shared:
        assert blob[part.blob : part.blob + part.length] == stored[part.pack : part.pack + part.length]
    assert sum(part.length for part in shared) == shared_size(made)
    return blob, shared


@pytest.mark.parametrize("block", [BLOCK, 131072, 1 << 20])
def test_all_whole_blocks_of_files_are_shared(tmp_path: Path, block: int) -> None:
    text, noise = TEXT * (3 * block // len(TEXT) + 1), random.Random(2).randbytes(2 * block)
    layer = [folder(b"opt"), file(b"opt/noise", noise), symlink(b"opt/n", b"noise"), file(b"opt/text", text)]
    made = pack(tmp_path / "p", layer, block=block)
    blob, shared = check(layer, made)
    assert sum(part.length for part in shared) > 2 * block
    # blocks of one file that shrank are one part; raw ones have the header of their frame between them
    assert len(shared) == 1 + 2 * max(1, block // 131072)
    assert len(blob) < len(made.path.read_bytes()) + 2000 + 4100 * len(shared)


def test_what_is_shared_begins_at_the_same_place_of_a_page(tmp_path: Path) -> None:
    """File systems share whole pages."""
    noise = random.Random(5).randbytes(300_000)
    layer = [file(b"%d" % number, noise[number:] + TEXT * 20 + noise) for number in range(6)]
    made = pack(tmp_path / "p", layer)
    _, shared = check(layer, made)
    placed = [(part.pack - part.blob) % 4096 == 0 for part in shared]
    assert sum(placed) >= 0.8 * len(placed)


def test_repeated_files_holes_and_tails_are_no_part_of_it(tmp_path: Path) -> None:
    holes = TEXT[:BLOCK] + bytes(5 * BLOCK) + NOISE[:BLOCK] + bytes(100_000)
    layer = [
        file(b"a", TEXT),
        file(b"b", TEXT),  # the same blocks
        file(b"c", NOISE),
        file(b"d", NOISE),
        file(b"e", holes),
        hard(b"f", b"a"),
        file(b"g", b"small"),
        file(b"h", b""),
    ]
    check(layer, pack(tmp_path / "p", layer, block=BLOCK))


def test_the_program_zstd_reads_it(tmp_path: Path) -> None:
    require_tools("zstd")
    layer = [file(b"a", NOISE), file(b"b", TEXT)]
    blob, _ = check(layer, pack(tmp_path / "p", layer, block=BLOCK))
    assert subprocess.run(["zstd", "-dc"], input=blob, capture_output=True, check=True).stdout == written_tar(layer)


def test_a_pack_of_another_codec_shares_nothing(tmp_path: Path) -> None:
    assert shared_size(pack(tmp_path / "p", [file(b"a", TEXT)], block=BLOCK, codec="gzip")) == 0


def test_a_damaged_block_is_found_by_the_digest(tmp_path: Path) -> None:
    layer = [file(b"a", NOISE)]
    made = pack(tmp_path / "p", layer, block=BLOCK)
    with made.path.open("r+b") as stored:
        os.pwrite(stored.fileno(), bytes([NOISE[5] ^ 1]), made.index.columns["starts"][0] + 5)
    _, diff_id, _ = blob_of(made)
    assert diff_id != f"sha256:{hashlib.sha256(written_tar(layer)).hexdigest()}"


CONTENTS = st.lists(
    st.one_of(
        st.integers(0, 3).map(lambda count: bytes(count * BLOCK)),
        st.tuples(st.integers(0, 9000), st.integers(0, 9000)).map(lambda at: NOISE[at[0] : at[0] + at[1]]),
        st.tuples(st.integers(0, 30_000), st.integers(0, 20_000)).map(lambda at: TEXT[at[0] : at[0] + at[1]]),
    ),
    max_size=4,
).map(b"".join)


OTHERS = st.sampled_from(
    [
        folder(b"d"),
        symlink(b"s", b"x" * 300),
        gone(b"g"),
        (Member(b"e", Kind.FILE, 0o644, xattrs={b"user.a": b"1"}), b""),
    ]
)


@given(contents=st.lists(st.one_of(CONTENTS, st.binary(max_size=700), OTHERS), max_size=20))
def test_any_layer(tmp_path_factory: pytest.TempPathFactory, contents: list[bytes | tuple[Member, bytes]]) -> None:
    layer = []
    for number, content in enumerate(contents):
        name = b"%03d" % number
        member, data = file(b"", content) if isinstance(content, bytes) else content
        layer.append((replace(member, path=name + member.path), data))
    check(layer, pack(tmp_path_factory.mktemp("p") / "p", layer, block=BLOCK))


def test_small_files_are_shared(tmp_path: Path) -> None:
    """A layer of them, with folders and links, has nearly all of its pack in a few parts."""
    text = [TEXT[number * 50 :][: 200 + 37 * number] for number in range(400)]
    layer = [item for number in range(40) for item in small_files(number, text[number * 10 :][:10])]
    made = pack(tmp_path / "p", layer)
    _, shared = check(layer, made)
    size = made.path.stat().st_size
    assert len(shared) <= 3
    assert sum(part.length for part in shared) > 0.9 * (made.end - 4096)
    plain = pack(tmp_path / "gzip", layer, codec="gzip", level=6)
    assert size < 1.1 * plain.path.stat().st_size  # headers in a block do not make it large


def small_files(number: int, contents: list[bytes]) -> Layer:
    name = b"d%02d" % number
    files = [file(name + b"/f%d" % at, content) for at, content in enumerate(contents)]
    return [folder(name), *files, symlink(name + b"/link", b"f1")]


def test_an_index_that_names_other_blocks_as_pieces(tmp_path: Path) -> None:
    """Another user may have written the pack: what is not a piece of the tar is compressed for the blob alone."""
    layer = [file(b"%d" % number, TEXT[number:][:3000]) for number in range(20)]
    made = pack(tmp_path / "p", layer, block=1 << 20)
    columns = made.index.columns
    assert len(columns["fragment_members"]) == 1 and not columns["fragment_members"][0]
    columns["fragment_members"][0] = 5
    blob, _, shared = blob_of(made)
    assert unpacked(blob) == written_tar(layer) and not shared


@pytest.mark.parametrize("size", [1, 131071, 131072, 131073, 300_000])
def test_a_frame_of_raw_blocks(size: int) -> None:
    content = random.Random(3).randbytes(size)
    frame = b"".join(head + content[at : at + length] for head, at, length in raw_blocks(size))
    assert zstandard.ZstdDecompressor().decompress(frame) == content
    assert zstandard.get_frame_parameters(frame).content_size == size


@pytest.mark.parametrize(
    "shared",
    [
        [Shared(0, 0, 0)],
        [Shared(0, 0, 10), Shared(9, 20, 5)],
        [Shared(0, 10, 10), Shared(20, 19, 5)],
        [Shared(95, 0, 6)],
        [Shared(0, 195, 6)],
        [Shared(-1, 0, 5)],
    ],
)
def test_parts_that_do_not_fit_are_refused(shared: list[Shared]) -> None:
    with pytest.raises(EnvbuildError):
        check_shared(shared, 100, 200)
