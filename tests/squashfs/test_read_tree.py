"""The reader of squashfs files, on images of envbuild's own writer: every corner, and random access."""

from __future__ import annotations

import struct

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from envbuild.core.errors import VerifyError
from envbuild.oci.tar import name_count
from envbuild.oci.tar.member import Kind, Member
from envbuild.squashfs import format as sq
from envbuild.squashfs.read import tree as read_tree
from envbuild.squashfs.read.inode import KINDS, REGULAR
from envbuild.squashfs.read.tree import SquashTree
from tests.support.examples import examples
from tests.support.packs import file, folder, symlink
from tests.support.squashfs_tree import LAYER, build, hard_links
from tests.support.squashfs_tree import image as image  # a fixture

pytestmark = pytest.mark.unit


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
        assert found[b"dev/big"].device == sq.device_number(259, 70_000) and KINDS[found[b"odd/fifo"].kind] == "fifo"
        assert [*hard_links(tree).values()] == [[b"noise", b"noise again"], [b"sign", b"sign again"]]
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


def test_links_that_lead_many_times_through_a_large_folder(tmp_path, monkeypatch):
    """Its listing is read once for each name, and a path may lead past as many entries as an image may have."""
    names = [b"f%04d" % number for number in range(1000)]
    again, other = b"d/z" + b"/../z" * 700, b"".join(b"d/%s/../../" % name for name in names[900:]) + b"d/z"
    folders = [folder(b"d/" + name) for name in [*names, b"z"]]
    layer = [*folders, file(b"d/z/x", b"content"), symlink(b"again", again), symlink(b"other", other)]
    read = []
    listing = read_tree.read_listing
    monkeypatch.setattr(
        read_tree, "read_listing", lambda *given: (read.append(found) or found for found in listing(*given))
    )
    monkeypatch.setattr(name_count, "MAX_ENTRIES", 10_000)
    with SquashTree(build(tmp_path, layer)) as tree:
        assert tree.read(b"again/x") == b"content"
        assert len(read) < 1100
        with pytest.raises(VerifyError, match="more than 10,000 entries"):
            tree.lookup(b"other/x")
        assert len(read) < 15_000


@examples(60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
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


def test_only_files_can_be_opened(image):
    with SquashTree(image) as tree:
        for path in (b"bin", b"odd/fifo", b"missing"):
            with pytest.raises(FileNotFoundError):
                tree.open(path)
        with pytest.raises(VerifyError, match="has 1048576 bytes"):
            tree.read(b"zeros", limit=1000)


@pytest.mark.parametrize("content", [b"", b"hsqs", b"no squashfs " * 50, bytes(96)])
def test_files_that_are_not_squashfs_are_refused(tmp_path, content):
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


def test_lookup_follows_as_many_links_as_linux_and_no_more(tmp_path):
    links = [*(symlink(b"%02d" % number, b"%02d" % (number + 1)) for number in range(40)), file(b"40", b"end")]
    with SquashTree(build(tmp_path, links)) as tree:
        assert tree.read(b"00") == b"end"
    with SquashTree(build(tmp_path, [symlink(b"a", b"00"), *links], name="more")) as tree:
        assert tree.read(b"a") is None and tree.read(b"00") == b"end"
