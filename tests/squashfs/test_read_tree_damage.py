"""Damage of every kind in a squashfs file is reported as such, without a crash and in bounded time and memory."""

from __future__ import annotations

import struct
import tracemalloc
from array import array
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from envbuild.core.errors import VerifyError
from envbuild.squashfs.read.decompress import CorruptDataError
from envbuild.squashfs.read.inode import MAX_WORDS, REGULAR, Inode, InodeTable
from envbuild.squashfs.read.sound_entries import sound_entries
from envbuild.squashfs.read.tree import Entry, SquashTree
from envbuild.verify.contents.metadata import read_metadata
from tests.support.examples import examples
from tests.support.packs import file, folder
from tests.support.squashfs_tree import LAYER, build, hard_links
from tests.support.squashfs_tree import image as image  # a fixture

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Write a small image in which nothing is compressed, so that every byte of its metadata can be changed."""
    layer = [member for member in LAYER if member[0].path not in (b"zeros", b"odd/far")]
    return build(tmp_path_factory.mktemp("plain"), layer, codec="none").read_bytes()


def read_everything(path: Path) -> None:
    """Read everything that any command reads."""
    with SquashTree(path) as tree:
        for name, inode in tree.walk():
            tree.xattrs(inode)
            if inode.kind == REGULAR and tree.content(inode).size < 1 << 26:
                with tree.open(name) as stream:
                    while stream.read(1 << 16):
                        pass
        hard_links(tree)
        read_metadata(tree)


def survives(path: Path) -> bool:
    """Return whether the file reads; a refusal must be a VerifyError, with where and hint."""
    try:
        read_everything(path)
    except VerifyError as error:
        assert error.where or error.message.startswith("a ")
        return False
    except FileNotFoundError:  # a name that a damaged link no longer reaches
        return False
    return True


@pytest.mark.slow_unit
@examples(400, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_reported(tmp_path, plain, image, data):
    """Bytes changed anywhere (mostly in the metadata), truncated, or swapped."""
    whole = bytearray(data.draw(st.sampled_from([plain, image.read_bytes()])))
    metadata = struct.unpack_from("<Q", whole, 64)[0]
    where = st.one_of(st.integers(0, 95), st.integers(metadata, len(whole) - 1), st.integers(0, len(whole) - 1))
    for at in data.draw(st.lists(where, min_size=1, max_size=6)):
        width = data.draw(st.sampled_from([1, 2, 4, 8]))
        wrong = data.draw(
            st.one_of(st.just(b"\xff" * width), st.just(bytes(width)), st.binary(min_size=width, max_size=width))
        )
        whole[at : at + width] = wrong
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
    path = tmp_path / "wrong.sqsh"
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
    """Return the position of a path's inode in the file."""
    path = tmp_path / "plain.sqsh"
    path.write_bytes(plain)
    with SquashTree(path) as tree:
        reference = tree.lookup(name, follow=False).reference
        return tree.superblock.inode_table + (reference >> 16) + 2 + (reference & 0xFFFF), tree


def test_a_type_of_an_attribute_with_bits_that_the_kernel_does_not_know(tmp_path, plain):
    """Linux does not list it, but finds it by its name."""
    data = bytearray(plain)
    at = data.index(b"\2\0\12\0capability")
    data[at + 1] = 0x80
    (tmp_path / "a.sqsh").write_bytes(data)
    with pytest.raises(VerifyError):
        read_everything(tmp_path / "a.sqsh")


@pytest.mark.parametrize(
    "name,offset,wrong",
    [
        (b"bin/sh2", 28, struct.pack("<I", 0xFFFFFFFF)),  # a file of 4 GiB: its size words are not there
        (b"noise", 24, struct.pack("<Q", 1 << 62)),
        (b"bin/sh2", 16, struct.pack("<I", 0xFFFFFFF0)),  # a start outside, read only where there are blocks
        (b"bin/sh2", 20, struct.pack("<I", 7_000)),  # a fragment that is not there
        (b"bin/sh2", 24, struct.pack("<I", 0xFFFF)),  # a tail outside of it
        (b"odd/fifo", 12, struct.pack("<I", 0)),  # inode numbers begin at 1
        (b"odd/fifo", 0, struct.pack("<H", 15)),
        (b"odd/fifo", 2, struct.pack("<H", 0o20644)),  # a type in the mode: a device for some kernels
        (b"sign", 24, b"te\0t"),  # for the kernel a shorter target
        (b"sign", 20, struct.pack("<I", 0)),
        (b"odd/fifo", 4, struct.pack("<H", 999)),  # an owner that is not there
        (b"noise", 52, struct.pack("<I", 99)),  # attributes that are not there
        (b"empty", 24, struct.pack("<H", 0xFFFF)),  # a listing that is not there
        (b"bin", 16, struct.pack("<I", 5)),  # between two pieces
        (b"text twice", 32, struct.pack("<I", 0x00FFFFFF)),  # a block of 16 MiB
        (b"text twice", 32, struct.pack("<I", 0x06000010)),  # a bit that does not exist
    ],
)
def test_wrong_values_in_inodes(tmp_path, plain, name, offset, wrong):
    at, _ = place_of(plain, tmp_path, name)
    data = bytearray(plain)
    data[at + offset : at + offset + len(wrong)] = wrong
    path = tmp_path / "wrong.sqsh"
    path.write_bytes(data)
    if (name, offset) == (b"bin/sh2", 16):  # only a tail: its start means nothing
        assert survives(path)
    else:
        refused_cheaply(path)
        with pytest.raises(VerifyError, match="damaged"), SquashTree(path) as tree:
            list(sound_entries(tree))  # which reads no content


def test_a_sound_file(tmp_path, plain):
    path = tmp_path / "sound.sqsh"
    path.write_bytes(plain)
    with SquashTree(path) as tree:
        found = list(sound_entries(tree))
        assert [entry for entry, _ in found] == list(tree.walk())
        assert [entry.path for entry, is_new in found if not is_new] == [b"noise again", b"sign again"]


@pytest.mark.parametrize("what", ["words", "attributes"])
def test_parts_of_inodes_that_overlap(tmp_path, plain, monkeypatch, what):
    """A few kilobytes of metadata would be read millions of times."""
    path = tmp_path / "overlap.sqsh"
    path.write_bytes(plain)
    with SquashTree(path) as tree:
        if what == "words":
            tree._inodes.inodes.room = 4 * 20
        else:
            monkeypatch.setattr("envbuild.oci.tar.name_count.MAX_NAMES", 40)
            monkeypatch.setattr(tree, "walk", lambda: iter([Entry(b"noise", tree.lookup(b"noise"))]))
        with pytest.raises(VerifyError, match="overlap"):
            list(sound_entries(tree))


@pytest.mark.parametrize("name", [b"..", b".", b"a/", b"a\0"])
def test_names_that_would_leave_the_tree(tmp_path, name):
    path = build(tmp_path, [file(b"q" * len(name), b"1")], codec="none")
    data = path.read_bytes()
    old = struct.pack("<H", len(name) - 1) + b"q" * len(name)
    refused_cheaply(patched(tmp_path, data, old, struct.pack("<H", len(name) - 1) + name))


def test_a_directory_that_holds_itself(tmp_path):
    """The kernel would walk on for ever."""
    path = build(tmp_path, [folder(b"a"), folder(b"a/b"), file(b"a/b/c", b"1")], codec="none")
    with SquashTree(path) as tree:
        found = {name: tree.lookup(name) for name in (b"a", b"a/b")}
        assert all(inode.reference >> 16 == 0 for inode in found.values())
    data = path.read_bytes()
    entry = struct.Struct("<HhHH")
    at = data.rindex(b"b", struct.unpack_from("<Q", data, 72)[0], struct.unpack_from("<Q", data, 88)[0]) - entry.size
    wrong = bytearray(data)
    (number,) = struct.unpack_from("<h", wrong, at + 2)
    number += found[b"a"].number - found[b"a/b"].number
    struct.pack_into("<Hh", wrong, at, found[b"a"].reference, number)
    path.write_bytes(wrong)
    with pytest.raises(VerifyError, match="is listed at two places"), SquashTree(path) as tree:
        list(tree.walk())


@pytest.mark.parametrize(("name", "limit"), [("MAX_ENTRIES", 3), ("MAX_NAMES", 20)])
def test_entries_and_their_names_have_limits(tmp_path, monkeypatch, name, limit):
    path = build(tmp_path, [file(b"name %d" % number, b"1") for number in range(5)])
    monkeypatch.setattr(f"envbuild.oci.tar.name_count.{name}", limit)
    with pytest.raises(VerifyError, match=f"more than .*{limit}"), SquashTree(path) as tree:
        list(tree.walk())


def test_a_file_of_too_many_blocks_is_refused():
    """A few kilobytes of compressed metadata hold millions of size words."""
    zeros = SimpleNamespace(room=1 << 40, read=lambda at, count: bytes(count))
    table = InodeTable(zeros, zeros, array("I"), 1)
    inode = Inode(REGULAR, 0o644, 0, 0, 0, 0, 1, 0)
    assert len(table.words(inode, 1000)) == 1000
    with pytest.raises(CorruptDataError):
        table.words(inode, MAX_WORDS + 1)
