"""Files that the kernel would find where a listing states others: indexes of directories, numbers of inodes."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from envbuild.core.errors import VerifyError
from envbuild.squashfs import format as sq
from envbuild.squashfs.read.compare import Comparison, pair_entries
from envbuild.squashfs.read.content import RAW
from envbuild.squashfs.read.sound_entries import sound_entries
from envbuild.squashfs.read.tree import SquashTree
from tests.support.packs import file, folder
from tests.support.squashfs_tree import build

pytestmark = pytest.mark.unit

COUNT = 700  # names of a directory with an index


def tree_with_indexes(tmp_path: Path) -> Path:
    """Return a squashfs file with two large directories, whose metadata are not compressed."""
    members = [folder(b"d"), folder(b"h")]
    for name, content in ((b"d", b"harmless"), (b"h", b"other")):
        members += [file(b"%s/name-%04d-%s" % (name, number, b"x" * 20), content) for number in range(COUNT)]
    return build(tmp_path, members, codec="none")


def refused(path: Path, match: str) -> None:
    with SquashTree(path) as tree, pytest.raises(VerifyError, match=match):
        list(tree.walk())


def directory(tree: SquashTree, name: bytes) -> tuple[int, int]:
    """Return where a directory's inode is in the inode table, and how many entries its index has."""
    inode = tree.lookup(name)
    assert inode and inode.listing_index[1]
    return inode.listing_index


@pytest.mark.parametrize(
    ("at", "value", "match"),
    [
        (0, 1, "its index leads elsewhere at name-"),  # not a header
        (4, 2, "points between two pieces"),
        (8, 4, "its index leads elsewhere at name"),  # another name
        (8, 4000, "a name in an index is too long"),
    ],
)
def test_an_index_that_leads_elsewhere(tmp_path: Path, at: int, value: int, match: str) -> None:
    path = tree_with_indexes(tmp_path)
    with SquashTree(path) as tree:
        assert sum(1 for _ in tree.walk()) == 2 * COUNT + 3
        place, _ = directory(tree, b"d")
        (start,) = struct.unpack_from("<Q", path.read_bytes(), 64)
    wrong = bytearray(path.read_bytes())
    position = start + place + 2 * (place // sq.PIECE + 1)  # each piece has a head of two bytes
    struct.pack_into("<I", wrong, position + at, value)
    path.write_bytes(wrong)
    refused(path, match)
    with SquashTree(path) as tree, pytest.raises(VerifyError, match=match):
        tree.lookup(b"d/name-0000-" + b"x" * 20)


def test_an_entry_with_the_number_of_another_inode(tmp_path: Path) -> None:
    """The kernel returns the inode that it has read under that number before."""
    path = build(tmp_path, [file(b"a", b"harmless"), file(b"b", b"other")], codec="none")
    with SquashTree(path) as tree:
        numbers = [entry.inode.number for entry in tree.walk()]
    assert len(set(numbers)) == 3
    data, entry = path.read_bytes(), struct.Struct("<HhHH")
    table, end = struct.unpack_from("<Q", data, 72)[0], struct.unpack_from("<Q", data, 88)[0]
    at = data.rindex(b"a", table, end) - entry.size
    wrong = bytearray(data)
    struct.pack_into("<h", wrong, at + 2, struct.unpack_from("<h", wrong, at + 2)[0] + 1)
    path.write_bytes(wrong)
    refused(path, "a is of another number than its inode")
    with SquashTree(path) as tree, pytest.raises(VerifyError, match="another number"):
        tree.lookup(b"a")


def test_two_inodes_with_one_number(tmp_path: Path) -> None:
    path = build(tmp_path, [file(b"a", b"harmless"), file(b"b", b"other")], codec="none")
    with SquashTree(path) as tree:
        found = [tree.lookup(name) for name in (b"a", b"b")]
        assert all(found)
    first, second = (inode for inode in found if inode)
    wrong = bytearray(path.read_bytes())
    (inodes,) = struct.unpack_from("<Q", wrong, 64)
    struct.pack_into("<I", wrong, inodes + 2 + (second.reference & 0xFFFF) + 12, first.number)
    at = wrong.rindex(b"b", struct.unpack_from("<Q", wrong, 72)[0], struct.unpack_from("<Q", wrong, 88)[0]) - 8
    struct.pack_into("<h", wrong, at + 2, struct.unpack_from("<h", wrong, at + 2)[0] + first.number - second.number)
    path.write_bytes(wrong)
    refused(path, "b has the number of another inode")


def test_two_fragment_blocks_at_one_place(tmp_path: Path) -> None:
    """The kernel returns what it has unpacked for the one when the other is read."""
    small = [file(b"file-%03d" % number, os.urandom(3000)) for number in range(100)]
    path = build(tmp_path, small, codec="none")
    with SquashTree(path) as tree:
        assert tree.superblock.fragments > 1
        assert tree.read(b"file-000") and tree.read(b"file-099")
    wrong = bytearray(path.read_bytes())
    (table,) = struct.unpack_from("<Q", wrong, struct.unpack_from("<Q", wrong, 80)[0])
    first = struct.unpack_from("<QI", wrong, table + 2)
    struct.pack_into("<QI", wrong, table + 2 + 16, first[0], first[1] - 16)
    path.write_bytes(wrong)
    with SquashTree(path) as tree, pytest.raises(VerifyError, match="two fragment blocks are at one place"):
        tree.read(b"file-000")


@pytest.mark.parametrize("mark", [0, RAW])
def test_two_blocks_of_other_length_or_form_at_one_place(tmp_path: Path, mark: int) -> None:
    """squashfuse and unsquashfs show what they unpacked for the one when the other is read."""
    block = os.urandom(1 << 17)
    path = build(tmp_path, [file(b"a", block), file(b"b", os.urandom(1 << 17)), file(b"c", block)], codec="none")
    with SquashTree(path) as tree:
        assert list(sound_entries(tree))  # a and c have the same blocks
        found = [tree.lookup(name) for name in (b"a", b"b")]
    first, second = (inode for inode in found if inode)
    wrong = bytearray(path.read_bytes())
    (inodes,) = struct.unpack_from("<Q", wrong, 64)
    at = inodes + 2 + (second.reference & 0xFFFF)
    struct.pack_into("<I", wrong, at + 16, first.start)
    if not mark:
        struct.pack_into("<II", wrong, at + 28, 1000, RAW | 1000)  # its size, and the block's
    else:
        struct.pack_into("<I", wrong, at + 32, 1 << 17)  # not marked as raw
    path.write_bytes(wrong)
    with SquashTree(path) as tree, pytest.raises(VerifyError, match="two blocks of different length or form"):
        list(sound_entries(tree))
    with SquashTree(path) as tree:
        comparison = Comparison(tree, tree)
        with pytest.raises(VerifyError, match="two blocks of different length or form"):
            for before, after in pair_entries(tree, tree):
                assert before and after
                comparison.fields(before, after)


@pytest.mark.parametrize("program", ["mksquashfs", "gensquashfs"])
def test_indexes_of_other_programs_are_sound(tmp_path: Path, program: str) -> None:
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    for name, count in (("large", 5000), ("small", 3), ("long", 900)):
        (tmp_path / "tree" / name).mkdir(parents=True)
        for number in range(count):
            long = "y" * (200 if name == "long" else 0)
            (tmp_path / "tree" / name / f"{number * 7919 % count:05d}{long}").touch()
    (tmp_path / "tree/large/00001").unlink()
    (tmp_path / "tree/large/00001").hardlink_to(tmp_path / "tree/small/00001")
    out = tmp_path / "image.sqsh"
    tree, quiet = tmp_path / "tree", ["-quiet", "-no-progress"]
    words = [tree, out, *quiet] if program == "mksquashfs" else ["-q", "-D", tree, out]
    subprocess.run([program, *words], check=True, capture_output=True)
    with SquashTree(out) as found:
        assert sum(1 for _ in found.walk()) == 5000 + 3 + 900 + 4
        assert directory(found, b"long")
