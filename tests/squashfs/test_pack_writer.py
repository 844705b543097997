"""Packs: what is refused, what damage is noticed, what their names cover."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.core.errors import EnvbuildError, SpecError, VerifyError
from envbuild.oci.tar.member import Kind, Member
from envbuild.squashfs.codec import Codec
from envbuild.squashfs.format import PIECE, STORED, MetadataWriter, device_number
from envbuild.squashfs.pack.checksums import check_pack
from envbuild.squashfs.pack.file import DATA, TAIL, read_pack
from envbuild.squashfs.pack.index import DIR, FRAGMENT_COLUMNS, RAW, SYMLINK, check_bounds
from envbuild.squashfs.pack.writer import PackWriter, pack_name
from envbuild.squashfs.read.superblock import check_image, describe_superblock
from tests.support.packs import file, folder, hard, pack, symlink
from tests.support.squashfs_image import write_image

pytestmark = pytest.mark.unit

NOISE = random.Random(1).randbytes(20_000)
LAYER = [
    file(b"a", NOISE, xattrs={b"user.\xff": b"\0\xff"}),
    file(b"b\xff\n", b"tail"),
    hard(b"c", b"a"),
    symlink(b"d", b"\xfe"),
]


def test_index_round_trip(tmp_path):
    read = pack(tmp_path / "pack", LAYER, block=4096)
    assert read.index.paths == [b"a", b"b\xff\n", b"c", b"d"] and read.index.links == [b"", b"", b"a", b"\xfe"]
    assert read.index.xattr_sets == [(), ((b"user.\xff", b"\0\xff"),)]
    assert list(read.index.columns["sizes"]) == [20_000, 4, 0, 0] and len(read.index.words(0)) == 4
    check_pack(tmp_path / "pack")


def test_every_flipped_byte_is_noticed(tmp_path):
    """By read_pack where it matters for reading (head, index, tail), by check_pack in the data."""
    path = tmp_path / "pack"
    end = pack(path, LAYER, block=4096).end
    whole = path.read_bytes()
    for at in [*range(0, 16), *range(16, end, 997), *range(end, len(whole), 3), len(whole) - 1]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(EnvbuildError) as caught:
            check_pack(path)
        assert caught.value.hint.endswith("envbuild store check --repair") and caught.value.where == str(path)
        if at >= end:
            with pytest.raises(EnvbuildError):
                read_pack(path)


@pytest.mark.parametrize("keep", [0, 3, 16, 40, 5000, -1, -64])
def test_a_truncated_pack_is_refused(tmp_path, keep):
    path = tmp_path / "pack"
    pack(path, LAYER, block=4096)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(EnvbuildError, match="damaged"):
        read_pack(path)


def test_an_index_that_points_outside_is_refused(tmp_path):
    """Even when its digest is right."""
    wrong = {"starts": 1 << 40, "xattrs": 9, "first": 99, "fragments": 7, "offsets": 5000, "sizes": 1 << 40}
    wrong |= {"fragment_starts": 1 << 50, "fragment_sizes": 1 << 20}
    before_the_data = [("starts", 0), ("fragment_starts", DATA - 1)]
    for column, value in [*wrong.items(), *before_the_data]:
        index = pack(tmp_path / "pack", LAYER, block=4096).index
        index.columns[column][0] = value
        with pytest.raises(ValueError):
            check_bounds(index, DATA, (tmp_path / "pack").stat().st_size)


@pytest.mark.parametrize("kind", [DIR, SYMLINK])
@pytest.mark.parametrize(("column", "value"), [("tails", 5), ("fragments", 0), ("stored", 5)])
def test_data_of_what_is_not_a_file_is_refused(tmp_path, kind, column, value):
    """Another member of a group wrote it: what writes images expects none."""
    index = pack(tmp_path / "pack", [*LAYER, symlink(b"link", b"a"), folder(b"folder")], block=4096).index
    check_bounds(index, DATA, (tmp_path / "pack").stat().st_size)
    row = index.kinds.index(kind)
    index.columns["starts"][row], index.columns[column][row] = DATA, value
    with pytest.raises(ValueError, match="a member that is not a file has data"):
        check_bounds(index, DATA, (tmp_path / "pack").stat().st_size)


def test_a_fragment_block_without_bytes_is_refused(tmp_path):
    index = pack(tmp_path / "pack", LAYER, block=4096).index
    index.columns["fragment_words"][0] = RAW
    with pytest.raises(ValueError, match="a fragment block has no bytes"):
        check_bounds(index, DATA, (tmp_path / "pack").stat().st_size)


def test_more_fragment_blocks_than_members_are_refused(tmp_path):
    """Each takes memory, and a compressed index of equal ones is small."""
    index = pack(tmp_path / "pack", LAYER, block=4096).index
    for name in FRAGMENT_COLUMNS:
        index.columns[name].extend([index.columns[name][0]] * len(index))
    with pytest.raises(ValueError, match="a fragment block without a member"):
        check_bounds(index, DATA, (tmp_path / "pack").stat().st_size)


def test_missing_pack(tmp_path):
    with pytest.raises(EnvbuildError, match="No such file"):
        read_pack(tmp_path / "none")


def test_nothing_is_left_after_a_failure(tmp_path):
    with pytest.raises(RuntimeError), PackWriter(tmp_path / "pack") as writer:
        writer.begin(file(b"a", b"12")[0])
        writer.data(b"1")
        raise RuntimeError
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("chunks,what", [([b"1"], "lacks 1 bytes"), ([b"12", b"3"], "more data")])
def test_data_must_have_the_size(tmp_path, chunks, what):
    with pytest.raises(EnvbuildError, match=what), PackWriter(tmp_path / "pack") as writer:
        writer.begin(file(b"a", b"12")[0])
        for chunk in chunks:
            writer.data(chunk)
        writer.end()


@pytest.mark.parametrize(
    "member",
    [
        Member(b"a", Kind.DIR, 0o755, size=1),
        Member(b"a", Kind.SYMLINK, 0o777),
        Member(b"a", Kind.SYMLINK, 0o777, link=b"x" * 4096),
        Member(b"a", Kind.FILE, 0o10000),
        Member(b"a", Kind.FILE, 0o644, uid=1 << 32),
        Member(b"a", Kind.FILE, 0o644, link=b"x"),
        Member(b"a", Kind.CHAR, 0o644, device=(4096, 0)),
        Member(b"a", Kind.HARDLINK, 0, link=b"../x"),
        Member(b"", Kind.FILE, 0o644),
    ],
)
def test_invalid_members_are_refused(tmp_path, member):
    with pytest.raises(EnvbuildError), PackWriter(tmp_path / "pack") as writer:
        writer.begin(member)


def test_name_covers_what_the_bytes_depend_on():
    names = {
        pack_name("sha256:ab", codec, level, block)
        for codec, level, block in [("zstd", 3, 131072), ("zstd", 1, 131072), ("gzip", 3, 131072), ("zstd", 3, 4096)]
    }
    assert len(names) == 4
    name = pack_name("sha256:ab")
    assert name.startswith("ab.") and Codec("zstd", 3).library in name and name.endswith(".v3") and "/" not in name


@pytest.mark.parametrize(
    "wrong", [{"codec": "lzo"}, {"level": 0}, {"level": 23}, {"block": 100_000}, {"block": 1 << 21}]
)
def test_wrong_parameters(tmp_path, wrong):
    with pytest.raises(SpecError) as caught:
        PackWriter(tmp_path / "pack", **wrong)
    assert caught.value.hint
    assert not list(tmp_path.iterdir())


def test_incompatible_packs_are_refused(tmp_path):
    one, two = pack(tmp_path / "1", LAYER, block=4096), pack(tmp_path / "2", LAYER)
    with pytest.raises(EnvbuildError, match="packs differ"):
        write_image([one, two], tmp_path / "image", epoch=0)
    with pytest.raises(EnvbuildError, match="at least one layer"):
        write_image([], tmp_path / "image", epoch=0)


def test_levels_may_differ(tmp_path):
    one, two = pack(tmp_path / "1", LAYER, level=1), pack(tmp_path / "2", [folder(b"x")], level=9)
    assert describe_superblock(write_image([one, two], tmp_path / "image", epoch=5).path)["time"] == 5


def test_a_pack_damaged_after_reading_leaves_no_image(tmp_path):
    layers = [pack(tmp_path / "1", LAYER, block=4096), pack(tmp_path / "2", [file(b".wh.b\xff\n")], block=4096)]
    data = (tmp_path / "1").read_bytes()
    (tmp_path / "1").write_bytes(data[:1000])
    with pytest.raises(EnvbuildError):
        write_image(layers, tmp_path / "image", epoch=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]


@pytest.mark.parametrize("codec", ["zstd", "gzip"])
def test_damaged_blocks(codec):
    used = Codec(codec, 3)
    packed = used.compress(b"text " * 1000)
    assert used.decompress(packed, 5000) == b"text " * 1000
    for bad, limit in ((packed, 4999), (packed[:-3], 5000), (b"no stream at all", 5000), (b"", 5000)):
        with pytest.raises(EnvbuildError):
            used.decompress(bad, limit)


def test_check_image_finds_damage(tmp_path):
    """Each field of the superblock that a kernel checks, and a truncated file."""
    image = write_image([pack(tmp_path / "1", LAYER, block=4096)], tmp_path / "image", epoch=0, all_root=False).path
    check_image(image)
    whole = image.read_bytes()
    for at, size in [(0, 4), (4, 4), (12, 4), (26, 2), (28, 2), (40, 8), (48, 8), (56, 8), (72, 8), (80, 8), (88, 8)]:
        (value,) = struct.unpack(f"<{size}s", whole[at : at + size])
        changed = (int.from_bytes(value, "little") + (1 << 20 if at == 4 else 9)) % (1 << 8 * size)
        image.write_bytes(whole[:at] + changed.to_bytes(size, "little") + whole[at + size :])
        try:
            check_image(image)
        except VerifyError:
            continue
        pytest.fail(f"field at {at} is not checked")
    image.write_bytes(whole[:4096])
    with pytest.raises(VerifyError):
        check_image(image)
    (tmp_path / "text").write_text("no image")
    with pytest.raises(VerifyError, match="not a squashfs"):
        describe_superblock(tmp_path / "text")


@given(st.lists(st.binary(min_size=0, max_size=9000), max_size=6), st.booleans())
def test_streams_of_any_pieces(parts, shrink):
    """Positions hold, and what is written comes back piece by piece."""
    stream = MetadataWriter((lambda data: bytes(data)[:0] + b"!") if shrink else bytes)
    starts = []
    for part in parts:
        piece, offset = stream.position
        assert offset < PIECE
        starts.append((piece, offset))
        stream.write(part)
    data, at, pieces = stream.finish(), 0, {}
    while at < len(data):
        (header,) = struct.unpack_from("<H", data, at)
        length = header & ~STORED
        pieces[at] = data[at + 2 : at + 2 + length]
        original = b"".join(parts)[(len(pieces) - 1) * PIECE : len(pieces) * PIECE]
        assert bool(header & STORED) == (not shrink or len(original) < 2)  # one byte does not shrink to one byte
        at += 2 + length
    if not shrink:
        whole, order = b"".join(pieces.values()), {start: number for number, start in enumerate(pieces)}
        assert whole == b"".join(parts)
        for part, (piece, offset) in zip(parts, starts, strict=True):
            if part:
                assert whole[order[piece] * PIECE + offset :].startswith(part)


def test_device_numbers():
    import os

    for major, minor in [(1, 3), (8, 255), (8, 256), (259, 70_000), (4095, (1 << 20) - 1)]:
        assert device_number(major, minor) == os.makedev(major, minor) & 0xFFFFFFFF
    assert TAIL.size == 64


def test_a_pack_that_cannot_be_closed_leaves_nothing(tmp_path):
    member, _ = file(b"a", b"12345")
    writer = PackWriter(tmp_path / "x.pack")
    writer.begin(member)
    writer.data(b"123")
    with pytest.raises(EnvbuildError):
        writer.close()
    assert list(tmp_path.iterdir()) == []
