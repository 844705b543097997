"""Squashfs files compared: by content, for any compression, and without unpacking blocks that are stored alike."""

from __future__ import annotations

import struct

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from envbuild.core.errors import VerifyError
from envbuild.squashfs import format as sq
from envbuild.squashfs.read.compare import Comparison, pair_entries
from envbuild.squashfs.read.inode import DIRECTORY, REGULAR
from envbuild.squashfs.read.tree import SquashTree
from tests.support.examples import examples
from tests.support.packs import file, hard
from tests.support.squashfs_image import compare_trees
from tests.support.squashfs_tree import LAYER, NOISE, TEXT, build

pytestmark = pytest.mark.unit


def test_two_images_of_other_codec_and_block_size_are_equal(tmp_path):
    ones = build(tmp_path, name="a")
    others = build(tmp_path, codec="gzip", block=131072, name="b")
    with SquashTree(ones) as one, SquashTree(others) as other:
        assert list(compare_trees(one, other)) == []


def test_equal_stored_bytes_are_not_unpacked(tmp_path):
    ones, others = build(tmp_path, name="a"), build(tmp_path, [*LAYER, file(b"a first", NOISE[9:5000])], name="b")
    with SquashTree(ones) as one, SquashTree(others) as other:
        comparison = Comparison(one, other)
        for before, after in pair_entries(one, other):
            assert not (before and after) or not before.path or comparison.fields(before, after) == {}
        assert comparison.same.unpacked < 40_000  # tails whose fragment block is another one; the blocks are not


def test_holes_are_compared_as_ranges(tmp_path):
    layer = [file(b"zeros", bytes(1 << 22))]
    with (
        SquashTree(build(tmp_path, layer, name="a")) as one,
        SquashTree(build(tmp_path, layer, block=131072, name="b")) as other,
    ):
        comparison = Comparison(one, other)
        pairs = list(pair_entries(one, other))
        assert [comparison.fields(*pair) for pair in pairs] == [{}] * len(pairs)
        assert comparison.same.unpacked == 0
        assert list(one.content(one.lookup(b"zeros")).pieces()) == [(1 << 22, None)]


def test_the_names_of_hard_links_are_compared(tmp_path):
    """A write to one of them changes the others."""

    def tree(name, *pairs):
        files = [file(path, b"same") for path, _ in pairs]
        return SquashTree(build(tmp_path, [*files, *(hard(link, path) for path, link in pairs)], name=name))

    with (
        tree("a", (b"a", b"b"), (b"c", b"d")) as one,
        tree("b", (b"a", b"d"), (b"b", b"c")) as other,
        tree("c", (b"d", b"c"), (b"b", b"a")) as same,
    ):
        found = {change.path: change.fields for change in compare_trees(one, other)}
        links = {"links": ("2", "2, with other names")}
        assert found == {b"b": links, b"d": links}
        assert list(compare_trees(one, same)) == []


def test_long_contents_are_compared_once(tmp_path):
    """The number of names is what the inode states, so a small image can list one file a million times."""
    layer = [file(b"noise", NOISE * 4)]
    with SquashTree(build(tmp_path, layer, name="a")) as one, SquashTree(build(tmp_path, layer, name="b")) as other:
        comparison = Comparison(one, other)
        pair = next(pair for pair in pair_entries(one, other) if pair[0].path == b"noise")
        assert pair[0].inode.links == 1
        assert comparison.fields(*pair) == {}
        spent = comparison.same.spent
        assert comparison.fields(*pair) == {} and comparison.same.spent == spent > 2 * len(NOISE * 4)


def test_a_block_of_lzo_costs_more(tmp_path):
    """It is unpacked in Python, at 10 MB/s: 844 kB of two files took four minutes."""
    unpacked = {}
    for codec in (1, 3, 6):
        with SquashTree(build(tmp_path, name=str(codec))) as tree:
            blocks = tree.blocks
            blocks.codec = codec
            blocks.inflate = lambda data, limit: b"x"
            before = blocks.spent
            blocks._unpacked(0, 8, 1000)
            unpacked[codec] = blocks.spent - before - 4096
    assert unpacked == {1: 1000, 3: 20_000, 6: 1000}


@pytest.mark.parametrize("block", [4096, 131072])
def test_the_work_of_a_comparison_has_a_limit(tmp_path, monkeypatch, block):
    monkeypatch.setattr("envbuild.squashfs.read.content_comparison.ALWAYS", 10_000)
    monkeypatch.setattr("envbuild.squashfs.read.content_comparison.RATIO", 0)
    ones, others = build(tmp_path, name="a"), build(tmp_path, block=block, name="b")
    with SquashTree(ones) as one, SquashTree(others) as other, pytest.raises(VerifyError, match="which is the limit"):
        list(compare_trees(one, other))


@examples(40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
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
        found = {change.path: change for change in compare_trees(before, after)}
    files = {path for path in olds.keys() | news.keys() if olds.get(path) != news.get(path)}
    assert {path for path in found if path in olds or path in news} == files
    for path in olds.keys() & news.keys() & files:
        assert found[path].fields.keys() == {"content"}
    for change in found.values():
        kinds = {inode.kind for inode in (change.before, change.after) if inode}
        assert kinds <= {DIRECTORY, REGULAR}


@pytest.mark.parametrize("size", [131072, 0])
def test_a_fragment_block_that_is_not_there_is_damage(tmp_path, size):
    """Also of a file without a tail, which the kernel cannot open then."""
    whole = build(tmp_path, [file(b"exact", NOISE[:1] * size)], codec="none", block=131072, name="a")
    data = whole.read_bytes()
    inode = struct.pack("<III", sq.NO_FRAGMENT, 0, size)  # of a basic file, behind the place of its blocks
    assert data.count(inode) == 1
    (tmp_path / "b.sqsh").write_bytes(data.replace(inode, struct.pack("<III", 7, 0, size)))
    with (
        SquashTree(whole) as one,
        SquashTree(tmp_path / "b.sqsh") as other,
        pytest.raises(VerifyError, match="there is no such fragment block"),
    ):
        list(compare_trees(one, other))
