"""Every codec and block size against the programs that read squashfs, and blocks shared on a file system with
reflinks.
"""

import gc
import hashlib
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from envbuild.squashfs.codec import BLOCKS, Codec
from envbuild.squashfs.read.superblock import read_superblock
from tests.support.squashfs_image import write_image
from tests.support.squashfs_snapshot import (
    EPOCH,
    FUSE,
    KERNEL,
    differences,
    file,
    folder,
    gone,
    hard,
    make_packs,
    mounted,
    stack,
    unpack,
)

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(not shutil.which("unsquashfs"), reason="unsquashfs is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="owners and mounts need root"),
]

LOOP = pytest.mark.skipif(not Path("/dev/loop-control").exists(), reason="loop devices are not there")
NOISE = random.Random(6).randbytes(1 << 20)
TEXT = b"".join(b"line %d of a text\n" % number for number in range(100_000))
FORMS = [
    *(("zstd", level) for level in (1, 3, 9, 19, 22)),
    *(("lz4", level) for level in (0, 1, 9, 12)),
    *(("gzip", level) for level in (1, 6, 9)),
    ("none", 0),
]
LAYERS = [
    [
        folder(b"d"),
        *(file(b"d/%03d" % number, TEXT[number * 999 :][: number * 11]) for number in range(300)),
        file(b"noise", NOISE),
        file(b"text", TEXT, xattrs={b"user.a": b"b"}),
        hard(b"text2", b"text"),
        file(b"zeros", bytes(3 << 20)),
    ],
    [*(gone(b"d/%03d" % number) for number in range(0, 300, 2)), file(b"again", TEXT), file(b"e", b"")],
]


def image(tmp_path, **form):
    return write_image(make_packs(tmp_path, LAYERS, **form), tmp_path / "image", epoch=EPOCH, all_root=False).path


@pytest.mark.parametrize("codec,level", FORMS)
def test_every_reader_reads(tmp_path, codec, level):
    made, expected = image(tmp_path, codec=codec, level=level), stack(LAYERS)
    assert not differences(unpack(made, tmp_path / "out"), expected)
    superblock = subprocess.run(["unsquashfs", "-s", made], capture_output=True, text=True, check=True).stdout
    assert f"Compression {Codec(codec, level).name.replace('none', 'gzip')}" in superblock
    if codec == "none":
        assert all(
            f"{what} uncompressed" in superblock for what in ("Inodes are", "Data is", "Fragments are", "Xattrs are")
        )
    if Path("/dev/loop-control").exists():
        assert not differences(mounted(made, tmp_path / "mnt", KERNEL), expected)
    if shutil.which("squashfuse"):  # it numbers hard links separately, and names attributes differently
        plain = [
            {path: (entry["kind"], entry["size"], entry["content"]) for path, entry in tree.items()}
            for tree in (mounted(made, tmp_path / "mnt", FUSE), expected)
        ]
        assert plain[0] == plain[1]


@pytest.mark.parametrize("codec", ["zstd", "lz4", "gzip", "none"])
@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_size(tmp_path, codec, block):
    made = image(tmp_path, codec=codec, level=1 if codec != "none" else 0, block=block)
    assert not differences(unpack(made, tmp_path / "out"), stack(LAYERS))
    with made.open("rb") as stream:
        assert read_superblock(stream, "image").block == block


def test_flags_of_an_uncompressed_image_equal_those_of_mksquashfs(tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a").write_bytes(TEXT)
    options = ["-noI", "-noD", "-noF", "-noX", "-quiet", "-no-progress"]
    if not shutil.which("mksquashfs"):
        pytest.skip("mksquashfs is not installed")
    subprocess.run(["mksquashfs", tmp_path / "tree", tmp_path / "theirs", *options], check=True, capture_output=True)
    blocks = []
    for path in (tmp_path / "theirs", image(tmp_path, codec="none", level=0)):
        with path.open("rb") as stream:
            blocks.append(read_superblock(stream, "image"))
    assert blocks[0].codec == blocks[1].codec and (blocks[0].flags & blocks[1].flags) & 0x10B == 0x10B


@LOOP
@pytest.mark.parametrize("kind,package", [("xfs", "xfsprogs"), ("btrfs", "btrfs-progs")])
def test_blocks_of_packs_are_shared(tmp_path, kind, package):
    """The image of cached packs shares their blocks, and has the same bytes as without sharing."""
    if not shutil.which(f"mkfs.{kind}"):
        pytest.skip(f"mkfs.{kind} is not installed (Debian: {package})")
    disk, place = tmp_path / "disk", tmp_path / "place"
    with disk.open("wb") as stream:
        stream.truncate(400 << 20)
    subprocess.run([f"mkfs.{kind}", "-q", disk], check=True)
    place.mkdir()
    noise = random.Random(8)
    layers = [
        [file(b"f%02d" % number, noise.randbytes(3_000_000 + number * 777)) for number in range(20)],
        [file(b"g%02d" % number, noise.randbytes(2_000_000 + number)) for number in range(10)],
        [gone(b"f03"), gone(b"f11"), gone(b"g05"), file(b"new", b"1")],
    ]
    mounting = subprocess.run(["mount", "-o", "loop", disk, place], capture_output=True, text=True)
    if mounting.returncode:
        pytest.skip(f"{kind} cannot be mounted here: {mounting.stderr.strip()}")
    try:
        packs = make_packs(place, layers)
        os.sync()
        before = os.statvfs(place)
        made = write_image(packs, place / "image", epoch=EPOCH)
        os.sync()
        after = os.statvfs(place)
        used = (before.f_bfree - after.f_bfree) * before.f_frsize
        assert made.size > 65_000_000 and used < made.size // 20, (used, made.size)
        digest = hashlib.sha256((place / "image").read_bytes()).hexdigest()
    finally:
        packs = made = None  # they have open files there
        gc.collect()
        subprocess.run(["umount", place], check=True)
    packs = make_packs(tmp_path, layers)
    assert hashlib.sha256(write_image(packs, tmp_path / "image", epoch=EPOCH).path.read_bytes()).hexdigest() == digest
