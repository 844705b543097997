"""The reader of squashfs files, on images of envbuild's own writer: every corner, random access, and damage of every
kind, which is told as such and costs neither a crash nor time nor memory."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packmaker import file, folder, hard, pack, symlink

from envbuild.errors import VerifyError
from envbuild.oci.member import Kind, Member
from envbuild.squashfs import format as sq
from envbuild.squashfs import write_image
from envbuild.squashfs.codec import DEFAULTS, IDS
from envbuild.squashfs.compare import compare
from envbuild.squashfs.inflate import Damaged, inflater
from envbuild.squashfs.tree import DIRECTORY, KINDS, REGULAR, SquashTree
from envbuild.within import look_within

pytestmark = pytest.mark.unit

EPOCH = 1_700_000_000
NOISE = b"".join(zlib.crc32(b"%d" % number).to_bytes(4, "little") for number in range(20_000))
TEXT = b"".join(b"line %d of a file that shrinks\n" % number for number in range(9_000))
CAPABILITY = b"\x01\x00\x00\x02\x00\x04\x00\x00" + bytes(12)


def special(path, kind, device=(0, 0)):
    return Member(path, kind, 0o600, device=device), b""


LAYER = [
    folder(b"bin"),
    file(b"bin/sh", NOISE[:5000], 0o4755),
    file(b"bin/sh2", TEXT[:70], 0o755, uid=70_000, gid=3, mtime=77),
    folder(b"dev"),
    special(b"dev/big", Kind.BLOCK, (259, 70_000)),
    special(b"dev/null", Kind.CHAR, (1, 3)),
    folder(b"empty", 0o1777),
    file(b"etc/block", NOISE[:4096]),
    file(b"etc/block and one", NOISE[:4097]),
    file(b"etc/block less one", NOISE[:4095]),
    file(b"etc/nothing"),
    file(b"holes", NOISE[:4096] + bytes(5 * 4096) + NOISE[:10]),
    file(b"noise", NOISE, xattrs={b"user.note": b"a\0b", b"security.capability": CAPABILITY}),
    hard(b"noise again", b"noise"),
    file(b"odd/\xff\xfe not utf-8", b"1"),
    file(b"odd/" + b"n" * 255, b"2"),
    file(b"odd/line\nbreak", b"3"),
    symlink(b"odd/far", b"/no/" + b"l" * 4000),
    special(b"odd/fifo", Kind.FIFO),
    symlink(b"sign", b"text"),
    hard(b"sign again", b"sign"),
    file(b"text", TEXT, xattrs={b"user.note": b"a\0b", b"security.capability": CAPABILITY}),
    file(b"text twice", TEXT),
    file(b"zeros", bytes(1 << 20)),
]  # fmt: skip


def build(folder: Path, layer=LAYER, *, codec="zstd", block=4096, name="image.sqsh") -> Path:
    made = pack(folder / f"{name}.pack", layer, codec=codec, level=DEFAULTS[codec], block=block)
    return write_image([made], folder / name, epoch=EPOCH, all_root=False).path


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("image"))


def contents(layer) -> dict[bytes, tuple[Member, bytes]]:
    """Path → member and content, hard links as what they name."""
    found = {member.path: (member, content) for member, content in layer if member.kind is not Kind.HARDLINK}
    return found | {m.path: found[m.link] for m, _ in layer if m.kind is Kind.HARDLINK}


@pytest.mark.parametrize("codec", ["zstd", "lz4", "gzip", "none"])
@pytest.mark.parametrize("block", [4096, 131072, 1 << 20])
def test_everything_reads_back(tmp_path, codec, block):
    expected = contents(LAYER)
    with SquashTree(build(tmp_path, codec=codec, block=block)) as tree:
        found = dict(tree.walk())
        assert set(found) == {b"", b"etc", b"odd", *expected}
        for path, (member, content) in expected.items():
            inode = found[path]
            assert (inode.mode, inode.uid, inode.gid, inode.mtime) == (
                member.mode,
                member.uid,
                member.gid,
                member.mtime,
            )
            assert inode.target == (member.link if member.kind is Kind.SYMLINK else b"")
            assert tree.xattrs(inode) == dict(member.xattrs)
            if inode.kind == REGULAR:
                assert inode.size == len(content)
                assert b"".join(tree.content(inode).blocks()) == content == tree.read(path)
        assert found[b"dev/big"].device == sq.device(259, 70_000) and KINDS[found[b"odd/fifo"].kind] == "fifo"
        assert [*tree.hard_links().values()] == [[b"noise", b"noise again"], [b"sign", b"sign again"]]
        assert found[b"noise"].links == 2


def test_the_order_is_that_of_paths_with_the_slash_first(tmp_path):
    layer = [file(path, b"1") for path in (b"a/x", b"a-b", b"a.b/c", b"a0", b"a/x.y", b"a/x-", b"b")]
    with SquashTree(build(tmp_path, layer)) as tree:
        paths = [path for path, _ in tree.walk()]
    assert paths == sorted(paths, key=lambda path: path.replace(b"/", b"\0"))
    assert paths == [b"", b"a", b"a/x", b"a/x-", b"a/x.y", b"a-b", b"a.b", b"a.b/c", b"a0", b"b"]


def test_a_directory_with_an_index(tmp_path):
    """Its listing is over 64 KiB and has many headers; every name is found, none is invented."""
    names = [b"name-%06d-%s" % (number, b"x" * (number % 40)) for number in range(4000)]
    with SquashTree(build(tmp_path, [file(b"d/" + name, name) for name in names])) as tree:
        assert tree.lookup(b"d").size > 0xFFFF
        assert [path for path, _ in tree.walk()] == [b"", b"d", *(b"d/" + name for name in sorted(names))]
        for name in (names[0], names[1999], names[-1]):
            assert tree.read(b"d/" + name) == name
        assert tree.lookup(b"d/name-") is tree.lookup(b"d/zzz") is tree.lookup(b"d/" + b"x" * 300) is None


def test_a_long_chain_of_directories(tmp_path):
    """Deeper than Python's own stack."""
    path = b"/".join([b"d"] * 1800)
    with SquashTree(build(tmp_path, [file(path + b"/f", b"deep")])) as tree:
        assert tree.read(path + b"/f") == b"deep"
        assert sum(1 for _ in tree.walk()) == 1802


LINKS = [
    folder(b"usr/lib"),
    file(b"usr/lib/x", b"content"),
    symlink(b"lib", b"usr/lib"),
    symlink(b"abs", b"/usr/lib/x"),
    symlink(b"usr/up", b"../../../lib/x"),
    symlink(b"loop", b"loop/on"),
    symlink(b"gone", b"nowhere"),
]


@pytest.mark.parametrize(
    "path,found",
    [
        (b"lib/x", True),
        (b"/lib//./x", True),
        (b"abs", True),
        (b"usr/up", True),
        (b"lib/../lib/x", True),
        (b"../../abs", True),
        (b"loop", False),
        (b"gone", False),
        (b"usr/lib/x/y", False),
        (b"lib/y", False),
        (b"usr/lib", False),
    ],
)
def test_lookup_follows_links_inside_the_image(tmp_path, path, found):
    with SquashTree(build(tmp_path, LINKS)) as tree:
        assert tree.read(path) == (b"content" if found else None)
        assert tree.lookup(b"abs", follow=False).target == b"/usr/lib/x"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from([b"holes", b"noise", b"text", b"zeros", b"etc/block", b"etc/block and one", b"etc/nothing"]),
    places=st.lists(st.tuples(st.integers(0, 90_000), st.integers(0, 9000)), min_size=1, max_size=5),
)
def test_reading_anywhere(image, path, places):
    content = contents(LAYER)[path][1]
    with SquashTree(image) as tree, tree.open(path) as stream:
        for at, count in places:
            assert stream.seek(at) == at
            assert stream.read(count) == content[at : at + count]
        stream.seek(-min(5, len(content)), 2)
        assert stream.read() == content[max(len(content) - 5, 0) :]


def test_what_is_no_file_cannot_be_opened(image):
    with SquashTree(image) as tree:
        for path in (b"bin", b"odd/fifo", b"missing"):
            with pytest.raises(FileNotFoundError):
                tree.open(path)
        with pytest.raises(VerifyError, match="has 1048576 bytes"):
            tree.read(b"zeros", limit=1000)


@pytest.mark.parametrize("content", [b"", b"hsqs", b"no squashfs " * 50, bytes(96)])
def test_what_is_no_squashfs(tmp_path, content):
    path = tmp_path / "x.sqsh"
    path.write_bytes(content)
    with pytest.raises(VerifyError, match="not a squashfs file"):
        SquashTree(path)


def test_a_codec_that_cannot_be_read_is_named(tmp_path):
    data = bytearray(build(tmp_path).read_bytes())
    data[20:22] = struct.pack("<H", 77)
    path = tmp_path / "x.sqsh"
    path.write_bytes(data)
    with pytest.raises(VerifyError, match=r"compressed with unknown \(77\)") as caught:
        SquashTree(path)
    assert "mksquashfs" in caught.value.hint


# damage
@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A small image in which nothing is compressed, so that every byte of its metadata can be made a lie."""
    layer = [member for member in LAYER if member[0].path not in (b"zeros", b"odd/far")]
    return build(tmp_path_factory.mktemp("plain"), layer, codec="none").read_bytes()


def read_everything(path: Path) -> None:
    """Everything that any command reads."""
    with SquashTree(path) as tree:
        for name, inode in tree.walk():
            tree.xattrs(inode)
            if inode.kind == REGULAR and tree.content(inode).size < 1 << 26:
                with tree.open(name) as stream:
                    while stream.read(1 << 16):
                        pass
        tree.hard_links()
        look_within(tree)


def survives(path: Path) -> bool:
    """Whether the file reads; a refusal must be a VerifyError, with where and hint."""
    try:
        read_everything(path)
    except VerifyError as error:
        assert error.where or error.message.startswith("a ")
        return False
    except FileNotFoundError:  # a name that a damaged link no longer reaches
        return False
    return True


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_told(tmp_path, plain, image, data):
    """Bytes changed anywhere (mostly in the metadata), cut off, or swapped."""
    whole = bytearray(data.draw(st.sampled_from([plain, image.read_bytes()])))
    metadata = struct.unpack_from("<Q", whole, 64)[0]
    where = st.one_of(st.integers(0, 95), st.integers(metadata, len(whole) - 1), st.integers(0, len(whole) - 1))
    for at in data.draw(st.lists(where, min_size=1, max_size=6)):
        width = data.draw(st.sampled_from([1, 2, 4, 8]))
        lie = data.draw(
            st.one_of(st.just(b"\xff" * width), st.just(bytes(width)), st.binary(min_size=width, max_size=width))
        )
        whole[at : at + width] = lie
    if data.draw(st.booleans()):
        del whole[data.draw(st.integers(0, len(whole))) :]
    path = tmp_path / "damaged.sqsh"
    path.write_bytes(whole)
    survives(path)


def test_the_undamaged_one_reads(tmp_path, plain):
    path = tmp_path / "plain.sqsh"
    path.write_bytes(plain)
    assert survives(path)


def patched(tmp_path: Path, data: bytes, old: bytes, new: bytes) -> Path:
    assert data.count(old) == 1 and len(old) == len(new)
    path = tmp_path / "lie.sqsh"
    path.write_bytes(data.replace(old, new))
    return path


def refused_cheaply(path: Path) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(VerifyError, match="damaged"):
            read_everything(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def place_of(plain: bytes, tmp_path: Path, name: bytes) -> tuple[int, SquashTree]:
    """Where the inode of a path lies in the file."""
    path = tmp_path / "plain.sqsh"
    path.write_bytes(plain)
    with SquashTree(path) as tree:
        reference = tree.lookup(name, follow=False).reference
        return tree.superblock.inode_table + (reference >> 16) + 2 + (reference & 0xFFFF), tree


@pytest.mark.parametrize(
    "name,offset,lie",
    [
        (b"bin/sh2", 28, struct.pack("<I", 0xFFFFFFFF)),  # a file of 4 GiB: its size words are not there
        (b"noise", 24, struct.pack("<Q", 1 << 62)),
        (b"bin/sh2", 16, struct.pack("<I", 0xFFFFFFF0)),  # a start outside, read only where there are blocks
        (b"bin/sh2", 20, struct.pack("<I", 7_000)),  # a fragment that is not there
        (b"bin/sh2", 24, struct.pack("<I", 0xFFFF)),  # a tail outside of it
        (b"odd/fifo", 12, struct.pack("<I", 0)),  # inode numbers begin at 1
        (b"odd/fifo", 0, struct.pack("<H", 15)),
        (b"odd/fifo", 4, struct.pack("<H", 999)),  # an owner that is not there
        (b"noise", 52, struct.pack("<I", 99)),  # attributes that are not there
        (b"empty", 24, struct.pack("<H", 0xFFFF)),  # a listing that is not there
        (b"bin", 16, struct.pack("<I", 5)),  # between two pieces
        (b"text twice", 32, struct.pack("<I", 0x00FFFFFF)),  # a block of 16 MiB
        (b"text twice", 32, struct.pack("<I", 0x06000010)),  # a bit that does not exist
    ],
)
def test_lies_in_inodes(tmp_path, plain, name, offset, lie):
    at, _ = place_of(plain, tmp_path, name)
    data = bytearray(plain)
    data[at + offset : at + offset + len(lie)] = lie
    path = tmp_path / "lie.sqsh"
    path.write_bytes(data)
    if (name, offset) == (b"bin/sh2", 16):  # only a tail: its start means nothing
        assert survives(path)
    else:
        refused_cheaply(path)


@pytest.mark.parametrize("name", [b"..", b".", b"a/", b"a\0"])
def test_names_that_would_lead_out(tmp_path, name):
    path = build(tmp_path, [file(b"q" * len(name), b"1")], codec="none")
    data = path.read_bytes()
    old = struct.pack("<H", len(name) - 1) + b"q" * len(name)
    refused_cheaply(patched(tmp_path, data, old, struct.pack("<H", len(name) - 1) + name))


def test_a_directory_that_holds_itself(tmp_path):
    """The kernel would walk on for ever."""
    path = build(tmp_path, [folder(b"a"), folder(b"a/b"), file(b"a/b/c", b"1")], codec="none")
    with SquashTree(path) as tree:
        offsets = {name: tree.lookup(name).reference for name in (b"a", b"a/b")}
        assert all(reference >> 16 == 0 for reference in offsets.values())
    data = path.read_bytes()
    entry = struct.Struct("<HhHH")
    at = data.rindex(b"b", struct.unpack_from("<Q", data, 72)[0], struct.unpack_from("<Q", data, 88)[0]) - entry.size
    lie = bytearray(data)
    struct.pack_into("<H", lie, at, offsets[b"a"])
    path.write_bytes(lie)
    with pytest.raises(VerifyError, match="stands at two places"), SquashTree(path) as tree:
        list(tree.walk())


@pytest.mark.parametrize("codec", ["gzip", "lzma", "xz", "lz4", "zstd"])
def test_a_block_that_lies_about_its_size(codec):
    """A frame that says 1 GiB, or a few bytes that unpack to 64 MiB: refused before the memory is taken."""
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
    unpack = inflater(IDS[codec], "x")
    tracemalloc.start()
    try:
        with pytest.raises(Damaged):
            unpack(bomb, 8192)
        with pytest.raises(Damaged):
            unpack(b"\x00garbage" * 9, 8192)
        with pytest.raises(Damaged):
            unpack(b"", 8192)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@settings(max_examples=300)
@given(data=st.binary(max_size=200), limit=st.integers(1, 9000))
def test_lzo_of_anything(data, limit):
    """A block that anybody wrote: unpacked within the limit, or refused."""
    unpack = inflater(IDS["lzo"], "x")
    with contextlib.suppress(Damaged):
        assert len(unpack(data, limit)) <= limit


def test_lzo_by_hand():
    """Instructions of every kind, written by hand from the description of the format."""
    unpack = inflater(IDS["lzo"], "x")
    end = b"\x11\x00\x00"
    assert unpack(bytes([17 + 4]) + b"abcd" + end, 99) == b"abcd"
    run = bytes([0, 1]) + b"0123456789abcdefghi"  # 15 + 1 + 3 literals
    assert unpack(run + end, 99) == b"0123456789abcdefghi"
    assert unpack(run + bytes([0x20 | 3]) + struct.pack("<H", (19 - 1) << 2 | 2) + b"XY" + end, 99) == (
        b"0123456789abcdefghi01234XY"
    )
    assert unpack(bytes([17 + 4]) + b"abcd" + bytes([0x40 | 0 << 2 | 0, 0]) + end, 99) == b"abcdddd"  # a pattern
    assert unpack(bytes([17 + 4]) + b"abcd" + bytes([0xE0 | 1 << 2 | 1, 0]) + b"!" + end, 99) == b"abcdcdcdcdcd!"
    with pytest.raises(Damaged):
        unpack(bytes([17 + 4]) + b"abcd" + bytes([0x40 | 7 << 2, 0]) + end, 99)  # before the beginning
    with pytest.raises(Damaged):
        unpack(run + bytes([0x20, 0, 255]) + struct.pack("<H", 0) + end, 99)  # 541 bytes where 99 may be


def test_two_images_of_other_codec_and_block_size_are_equal(tmp_path):
    ones = build(tmp_path, name="a")
    others = build(tmp_path, codec="gzip", block=131072, name="b")
    with SquashTree(ones) as one, SquashTree(others) as other:
        assert list(compare(one, other)) == []


def test_equal_stored_bytes_are_not_unpacked(tmp_path):
    from envbuild.squashfs.compare import Comparison, pairs

    ones, others = build(tmp_path, name="a"), build(tmp_path, [*LAYER, file(b"a first", NOISE[9:5000])], name="b")
    with SquashTree(ones) as one, SquashTree(others) as other:
        comparison = Comparison(one, other)
        for before, after in pairs(one, other):
            assert not (before and after) or not before.path or comparison.fields(before, after) == {}
        assert comparison.same.unpacked < 40_000  # tails whose fragment block is another one; the blocks are not


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    old=st.dictionaries(st.sampled_from([b"a", b"a/b", b"a.b", b"c/d/e", b"c/d", b"f"]), st.integers(0, 3)),
    new=st.dictionaries(st.sampled_from([b"a", b"a/b", b"a.b", b"c/d/e", b"c/d", b"f"]), st.integers(0, 3)),
)
def test_comparing_trees_is_comparing_dictionaries(tmp_path, old, new):
    def made(name, wanted):
        parents = {path for path in wanted for other in wanted if other.startswith(path + b"/")}
        values = {path: TEXT[: 5000 * value + 1] for path, value in wanted.items() if path not in parents}
        return build(tmp_path, [file(path, value) for path, value in values.items()], name=name), values

    (one, olds), (other, news) = made("a", old), made("b", new)
    with SquashTree(one) as before, SquashTree(other) as after:
        found = {change.path: change for change in compare(before, after)}
    files = {path for path in olds.keys() | news.keys() if olds.get(path) != news.get(path)}
    assert {path for path in found if path in olds or path in news} == files
    for path in olds.keys() & news.keys() & files:
        assert found[path].fields.keys() == {"content"}
    for change in found.values():
        kinds = {inode.kind for inode in (change.before, change.after) if inode}
        assert kinds <= {DIRECTORY, REGULAR}
