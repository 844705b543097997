"""Squashfs files compared: by content, for any compression, and without unpacking blocks that are stored alike."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from envbuild.squashfs.read.inode import DIRECTORY, REGULAR
from envbuild.squashfs.read.tree import SquashTree
from tests.support.examples import examples
from tests.support.packs import file
from tests.support.squashfs_image import compare_trees
from tests.support.squashfs_tree import LAYER, NOISE, TEXT, build

pytestmark = pytest.mark.unit


def test_two_images_of_other_codec_and_block_size_are_equal(tmp_path):
    ones = build(tmp_path, name="a")
    others = build(tmp_path, codec="gzip", block=131072, name="b")
    with SquashTree(ones) as one, SquashTree(others) as other:
        assert list(compare_trees(one, other)) == []


def test_equal_stored_bytes_are_not_unpacked(tmp_path):
    from envbuild.squashfs.read.compare import Comparison, pair_entries

    ones, others = build(tmp_path, name="a"), build(tmp_path, [*LAYER, file(b"a first", NOISE[9:5000])], name="b")
    with SquashTree(ones) as one, SquashTree(others) as other:
        comparison = Comparison(one, other)
        for before, after in pair_entries(one, other):
            assert not (before and after) or not before.path or comparison.fields(before, after) == {}
        assert comparison.same.unpacked < 40_000  # tails whose fragment block is another one; the blocks are not


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
