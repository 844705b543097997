"""Edges of the format: block ends, directory headers and indexes, table pieces, 4 GiB."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from envbuild.core.errors import EnvbuildError
from envbuild.oci.tar.member import Kind, Member
from envbuild.squashfs.pack.file import read_pack
from envbuild.squashfs.pack.writer import PackWriter
from envbuild.squashfs.read.superblock import describe_superblock
from envbuild.squashfs.write import image_body
from tests.support.squashfs_image import write_image
from tests.support.squashfs_snapshot import (
    EPOCH,
    KERNEL,
    differences,
    file,
    folder,
    gone,
    hard,
    in_mount,
    make_packs,
    mounted,
    special,
    stack,
    symlink,
    unpack,
)  # fmt: skip

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(not shutil.which("unsquashfs"), reason="unsquashfs is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="owners need root"),
]

LOOP = pytest.mark.skipif(not Path("/dev/loop-control").exists(), reason="loop devices are not there")


def build(tmp_path, layers, **kw):
    return write_image(make_packs(tmp_path, layers, **kw), tmp_path / "image", epoch=EPOCH, all_root=False)


def check(tmp_path, layers, kernel=True, **kw):
    written = build(tmp_path, layers, **kw)
    expected = stack(layers)
    assert not differences(unpack(written.path, tmp_path / "out"), expected)
    if kernel and Path("/dev/loop-control").exists():
        assert not differences(mounted(written.path, tmp_path / "mnt"), expected)
    return written


@pytest.mark.parametrize("block", [4096, 131072])
def test_sizes_around_blocks(tmp_path, block):
    noise = random.Random(2).randbytes(4 * block)
    layer = [
        file(b"%s-%d%+d" % (name, count, more), content[: count * block + more])
        for name, content in ((b"noise", noise), (b"text", b"abcd" * block), (b"zeros", bytes(4 * block)))
        for count in (0, 1, 2, 3)
        for more in (-1, 0, 1)
        if count * block + more >= 0
    ]
    holes = bytes(block) + noise[:block] + bytes(2 * block) + noise[:5]
    check(tmp_path, [[*layer, file(b"holes", holes), file(b"end", noise[:block] + bytes(block))]], block=block)


def test_equal_tails_are_stored_once(tmp_path):
    tail = random.Random(3).randbytes(50_000)
    layer = [file(b"copy %d" % number, tail) for number in range(20)]
    assert check(tmp_path, [layer]).size < 2 * len(tail)


@pytest.mark.parametrize("count", [255, 256, 257, 513])
def test_directory_of(tmp_path, count):
    check(tmp_path, [[file(b"d/%04d" % number, b"") for number in range(count)]])


def test_listings_and_inodes_that_end_on_a_piece(tmp_path):
    """256 inodes of 32 bytes are one piece of 8192; names are made such that listings pass that border byte by byte."""
    for inodes in range(252, 259):
        place = tmp_path / f"i{inodes}"
        place.mkdir()
        check(place, [[file(b"%04d" % number, b"x%d" % number) for number in range(inodes - 1)]])
    for length in (8190, 8191, 8192, 8193, 8203, 8204, 8205):  # one header of 12, entries of 8 + 200, one last
        rest = length - 12 - 39 * 208
        names = [b"%03d" % number + b"n" * 197 for number in range(39)] + [b"z" * (rest - 8)]
        place = tmp_path / f"l{length}"
        place.mkdir()
        check(place, [[file(name, b"") for name in names]])


@LOOP
def test_a_directory_of_seventy_thousand_entries(tmp_path):
    """The index is used: the kernel finds the first, the last, some between, and does not find what is missing."""
    count = 70_000
    names = [b"d/name-%06d" % number for number in range(count)]
    layers = [[file(name) for name in names], [gone(name) for name in names[:1000]]]
    written = build(tmp_path, layers)
    program = """
import os, sys
os.chdir(sys.argv[1] + "/d")
for number in range(1000, 70000, 7):
    os.lstat("name-%06d" % number)
for name in ("name-069999", "name-001000"):
    os.lstat(name)
missing = ["a", "zzz", "name-070000", "name-000999", "name-035000x"]
for name in missing + ["name-%06dx" % n for n in range(1000, 70000, 997)]:
    assert not os.path.lexists(name), name
print(len(os.listdir(".")), len(set(os.listdir("."))))
"""
    output = in_mount(written.path, *KERNEL, [sys.executable, "-c", program, str(tmp_path / "mnt")], tmp_path / "mnt")
    assert output.split() == [b"69000", b"69000"]
    listed = subprocess.run(["unsquashfs", "-l", written.path], capture_output=True, text=True, check=True).stdout
    assert listed.count("/name-") == 69_000


def test_more_than_one_piece_of_ids_and_xattr_sets(tmp_path):
    layer = [
        file(b"d/%05d" % number, b"", uid=number + 1000, gid=100_000 + number, xattrs={b"user.n": b"%d" % number})
        for number in range(2500)
    ]
    written = check(tmp_path, [layer])
    assert describe_superblock(written.path)["ids"] == 5000 + 1


def test_too_many_ids_are_refused(tmp_path):
    layer = [file(b"d/%05d" % number, b"", uid=number, gid=100_000 + number) for number in range(33_000)]
    with pytest.raises(EnvbuildError, match="66000 different"):
        build(tmp_path, [layer])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.pack"]


def test_attributes_on_every_kind(tmp_path):
    xattrs = {b"trusted.k": b"v"}
    layer = [
        special(str(kind).encode(), kind, xattrs=xattrs) for kind in Kind if kind not in (Kind.HARDLINK, Kind.SYMLINK)
    ]
    check(tmp_path, [[*layer, symlink(b"symlink", b"t", xattrs=xattrs)]])


def test_attributes_without_a_squashfs_prefix_are_reported(tmp_path):
    layer = [file(b"a", b"1", xattrs={b"system.posix_acl_access": b"x", b"user.kept": b"y"})]
    written = build(tmp_path, [layer])
    assert written.messages == ("dropped extended attributes that squashfs cannot hold: system.posix_acl_access",)
    assert unpack(written.path, tmp_path / "out")[b"a"]["xattrs"] == {b"user.kept": b"y"}


def test_five_gibibytes_of_zeros_with_an_end(tmp_path):
    """Size and hard link beyond 4 GiB; sparse on both sides, so it costs no disk."""
    size, end = 5 << 30, b"the end"
    zeros = bytes(16 << 20)
    with PackWriter(tmp_path / "pack", block=1 << 20) as writer:
        writer.begin(Member(b"big", Kind.FILE, 0o644, size=size + len(end)))
        for _ in range(size // len(zeros)):
            writer.data(zeros)
        writer.data(end)
        writer.end()
        writer.begin(hard(b"second", b"big")[0])
        writer.end()
    written = write_image([read_pack(tmp_path / "pack")], tmp_path / "image", epoch=EPOCH)
    assert written.size < 1 << 20
    subprocess.run(["unsquashfs", "-q", "-n", "-d", tmp_path / "out", written.path], check=True)
    status = (tmp_path / "out" / "big").stat()
    assert status.st_size == size + len(end) and status.st_nlink == 2
    with (tmp_path / "out" / "second").open("rb") as stream:
        stream.seek(size - 3)
        assert stream.read() == bytes(3) + end
    assert status.st_blocks * 512 < 64 << 20


def test_data_beyond_four_gibibytes(tmp_path, monkeypatch):
    """Files that start there need the long inode. The data is moved up in a sparse file instead of writing 5 GiB."""
    real = image_body.plan_data
    monkeypatch.setattr(
        image_body, "plan_data", lambda packs, live, start, jobs: real(packs, live, start + (5 << 30), jobs)
    )
    noise = random.Random(4).randbytes(500_000)
    layers = [
        [file(b"a", noise), hard(b"b", b"a"), file(b"c", b"tail"), file(b"gone", b"x"), file(b"d/e", noise[:131072])],
        [gone(b"gone")],
    ]
    check(tmp_path, layers)
    os.truncate(tmp_path / "image", 0)


def test_hard_links_within_and_across_layers(tmp_path):
    layers = [
        [
            hard(b"before", b"target"),
            file(b"target", b"1"),
            hard(b"far/away", b"before"),
            symlink(b"s", b"target"),
            hard(b"s2", b"s"),
        ],
        [hard(b"upper", b"target"), gone(b"target")],
        [file(b"before", b"replaced"), hard(b"far/away2", b"far/away")],
    ]
    # A whiteout concerns lower layers only, and comes first: the link finds nothing then.
    with pytest.raises(EnvbuildError, match="'upper' of a layer names nothing: 'target'"):
        build(tmp_path, layers)
    layers[1] = [hard(b"upper", b"target")]
    check(tmp_path, [*layers, [gone(b"target")]])


def test_deep_and_wide(tmp_path):
    """Inode numbers of one directory far from each other (hard links over 32,767 inodes), and deep paths."""
    layer = [
        file(b"a/first", b"1"),
        *(file(b"b/%05d" % number, b"") for number in range(40_000)),
        hard(b"z/first", b"a/first"),
    ]
    layer += [hard(b"z/%05d" % number, b"b/%05d" % number) for number in range(0, 40_000, 500)]
    layer += [folder(b"/".join([b"deep"] * depth)) for depth in range(1, 200)]
    check(tmp_path, [layer])


def test_metadata_beyond_one_piece_of_export_and_fragments(tmp_path):
    noise = random.Random(5).randbytes(600 * 3000)
    layer = [file(b"f/%d" % number, noise[number * 3000 :][:3000]) for number in range(600)]
    written = check(tmp_path, [layer], block=4096)
    assert describe_superblock(written.path)["fragments"] == 600  # more than the 512 of one piece
