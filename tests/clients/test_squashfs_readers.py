"""Images against the programs that read them: unsquashfs, the kernel, squashfuse."""

import os
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from envbuild.oci.tar.member import Kind
from envbuild.squashfs.read.superblock import describe_superblock
from envbuild.squashfs.write.merge import merge_packs
from envbuild.squashfs.write.writer import write_tree
from tests.support.squashfs_image import write_image
from tests.support.squashfs_snapshot import (
    EPOCH,
    FUSE,
    KERNEL,
    as_root,
    differences,
    file,
    folder,
    gone,
    hard,
    make_packs,
    mounted,
    opaque,
    special,
    stack,
    symlink,
    unpack,
    without,
)  # fmt: skip

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(not shutil.which("unsquashfs"), reason="unsquashfs is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="owners and devices need root"),
]

NOISE = random.Random(1).randbytes(300_000)
TEXT = b"".join(b"line %d of a compressible file\n" % number for number in range(20_000))
CAPABILITY = b"\x01\x00\x00\x02\x00\x04\x00\x00" + bytes(12)

BASE = [
    folder(b"bin"),
    file(b"bin/sh", NOISE[:5000], 0o755),
    folder(b"dev"),
    special(b"dev/null", Kind.CHAR, (1, 3), 0o666),
    special(b"dev/big", Kind.BLOCK, (259, 70000)),
    folder(b"etc", 0o750, uid=7, gid=12345, mtime=2_300_000_000),
    file(b"etc/empty"),
    file(b"etc/secret", b"only for root", 0o000, uid=4_000_000_000),
    file(b"etc/shadow", b"once more", 0o400),
    folder(b"odd"),
    file(b"odd/\xff\xfe not utf-8", b"1"),
    file(b"odd/line\nbreak", b"2"),
    file(b"odd/" + b"n" * 255, b"3"),
    file("odd/blank quote' \"back\\slash ü".encode(), b"4"),
    symlink(b"odd/dangling", b"/no/" + b"l" * 4000),
    special(b"odd/fifo", Kind.FIFO),
    folder(b"opt/implicit/below"),  # parents without an entry of their own
    folder(b"replaced"),
    file(b"replaced/by", b"a symlink later"),
    folder(b"srv"),
    file(b"srv/a", b"deleted later"),
    file(b"srv/b", TEXT),
    hard(b"srv/b2", b"srv/b"),
    folder(b"tmp", 0o1777),
    folder(b"usr"),
    file(b"usr/noise", NOISE, 0o6755),
    file(b"usr/text", TEXT, xattrs={b"user.note": b"a\0b\n", b"security.capability": CAPABILITY}),
    file(b"usr/text again", TEXT, xattrs={b"user.note": b"a\0b\n", b"security.capability": CAPABILITY}),
    file(b"usr/zeros", bytes(1 << 20)),
    file(b"usr/holes", NOISE[:131072] + bytes(3 * 131072) + NOISE[:50]),
    file(b"usr/old", b"old", mtime=-5),
    symlink(b"usr/link", b"text", xattrs={b"trusted.on": b"link"}),
    hard(b"usr/link again", b"usr/link"),
]
MIDDLE = [
    gone(b"srv/a"),
    file(b"srv/c", b"new in the middle"),
    opaque(b"usr"),
    folder(b"usr", 0o711, uid=1, xattrs={b"user.on": b"directory"}),
    file(b"usr/text", b"replaced"),
    symlink(b"replaced", b"srv"),
    hard(b"below", b"bin/sh"),  # to a file of the layer below
]
TOP = [
    gone(b"replaced"),
    folder(b"etc", 0o755),
    file(b"etc/new", b"x" * 131072),
    file(b"srv/b", b"no longer the file that b2 names"),
    file(b"odd/fifo", b"a file now"),
    folder(b"odd/dangling"),
    file(b"odd/dangling/x", b"y"),
]
LAYERS = [BASE, MIDDLE, TOP]


def build(tmp_path, layers=LAYERS, all_root=False, **kw):
    image = tmp_path / "image.sqsh"
    return write_image(make_packs(tmp_path, layers, **kw), image, epoch=EPOCH, all_root=all_root)


@pytest.mark.parametrize("codec,block", [("zstd", 4096), ("zstd", 131072), ("zstd", 1 << 20), ("gzip", 131072)])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_unsquashfs(tmp_path, codec, block, count):
    written = build(tmp_path, LAYERS[:count], codec=codec, block=block)
    assert not differences(unpack(written.path, tmp_path / "out"), stack(LAYERS[:count]))


def test_superblock_by_unsquashfs_and_describe(tmp_path):
    written = build(tmp_path)
    superblock = subprocess.run(["unsquashfs", "-s", written.path], capture_output=True, text=True, check=True).stdout
    for line in ("Compression zstd", "compression-level 3", "Block size 131072", f"Number of inodes {written.inodes}"):
        assert line in superblock
    described = describe_superblock(written.path)
    assert (
        described["codec"] == "zstd"
        and described["level"] == 3
        and described["block"] == 131072
        and described["time"] == EPOCH
    )
    assert described["inodes"] == written.inodes and described["size"] == written.size == written.path.stat().st_size
    assert written.size % 4096 == 0 and written.path.stat().st_mode & 0o7777 == 0o644


@pytest.mark.parametrize("block", [4096, 131072, 1 << 20])
def test_kernel(tmp_path, loop, block):
    written = build(tmp_path, block=block)
    assert not differences(mounted(written.path, tmp_path / "mnt", KERNEL), stack(LAYERS))


@pytest.mark.skipif(not shutil.which("squashfuse"), reason="squashfuse is not installed")
@pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="/dev/fuse is not there")
def test_squashfuse(tmp_path):
    """squashfuse shows security.* as trusted.* and different inode numbers of hard links: not compared."""
    written = build(tmp_path)
    found = without(mounted(written.path, tmp_path / "mnt", FUSE), "xattrs", "names")
    assert not differences(found, without(stack(LAYERS), "xattrs", "names"))


def test_enroot_can_unpack_a_plain_image(tmp_path):
    """Root owns all, no devices, nothing below dev, no xattrs, readable files; every repair is reported."""
    written = build(tmp_path, all_root=True)
    expected = as_root(stack(LAYERS))
    for path in (b"dev/null", b"dev/big"):
        del expected[path]
    expected[b"etc/secret"]["mode"] = 0o400
    expected[b"usr"]["mode"] = 0o711 | 0o700
    assert not differences(unpack(written.path, tmp_path / "out"), expected)
    text = "\n".join(written.messages)
    assert len(written.messages) == 3
    assert "dev/null" in text and "etc/secret" in text and "dropped extended attributes: 1 (usr)" in text
    described = describe_superblock(written.path)
    assert described["ids"] == 1 and not described["xattrs"]


def test_a_device_outside_dev_is_dropped(tmp_path):
    layer = [special(b"opt/disk", Kind.BLOCK, (8, 1)), file(b"opt/file", b"1"), folder(b"locked", 0o000)]
    written = build(tmp_path, [layer], all_root=True)
    expected = as_root(stack([layer[1:]]))
    expected[b"locked"]["mode"] = 0o700
    assert not differences(unpack(written.path, tmp_path / "out"), expected)
    assert [message.split(":")[0] for message in written.messages] == [
        "dropped device nodes",
        "made directories writable and searchable for their owner",
    ]


def test_programs_that_only_others_may_run(tmp_path):
    """Their owner is the job's user, and where squashfuse mounts the file nothing else would let him run them."""
    layer = [
        file(b"group", b"1", 0o410),
        file(b"others", b"2", 0o011),
        file(b"data", b"3", 0o066),
        hard(b"z", b"group"),
    ]
    written = build(tmp_path, [layer], all_root=True)
    found = unpack(written.path, tmp_path / "out")
    modes = {b"group": 0o510, b"others": 0o511, b"data": 0o466, b"z": 0o510}
    assert {path: found[path]["mode"] for path in modes} == modes
    assert written.messages == (
        "made files readable for their owner: 2 (data, others)",
        "made programs executable for their owner: 2 (group, others)",
    )


def test_unpacks_as_an_ordinary_user(tmp_path):
    """Root hides failures: enroot unpacks as the job's user."""
    written = build(tmp_path, all_root=True)
    user = ["setpriv", "--reuid", "4242", "--regid", "4242", "--clear-groups"]
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders cannot be entered by others
        place = Path(name)
        os.chown(place, 4242, 4242)
        if subprocess.run([*user, "test", "-w", place]).returncode:
            pytest.skip(f"other users cannot enter {place.parent}")
        shutil.copy(written.path, place / "image.sqsh")
        (place / "image.sqsh").chmod(0o644)
        command = [*user, "unsquashfs", "-q", "-n", "-user-xattrs", "-d", place / "out", place / "image.sqsh"]
        done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_bytes_depend_on_content_only(tmp_path):
    """One job or three, chunks of any size, packs new or from before: the same bytes."""
    images = []
    for number, (jobs, chunk) in enumerate([(1, 0), (3, 0), (3, 1000), (0, 70_000)]):
        place = tmp_path / str(number)
        place.mkdir()
        packs = make_packs(place, LAYERS, jobs=jobs, chunk=chunk)
        images.append(write_image(packs, place / "image", epoch=EPOCH).path.read_bytes())
        again = write_image(packs, place / "cached", epoch=EPOCH).path.read_bytes()
        assert again == images[0]
        assert (place / "0.pack").read_bytes() == (tmp_path / "0" / "0.pack").read_bytes()
    assert len(set(images)) == 1


def test_deleted_content_is_not_in_the_file(tmp_path):
    """Neither whole blocks nor tails beside live ones in a fragment block. Noise is stored raw: a search sees it."""
    secret = random.Random(7).randbytes(3000)
    big = random.Random(8).randbytes(300_000)
    base = [file(b"a", NOISE[:2000]), file(b"key", secret), file(b"key-big", big), file(b"z", NOISE[2000:5000])]
    layers = [base, [gone(b"key"), gone(b"key-big")]]
    before = build(tmp_path, [base]).path.read_bytes()
    assert secret in before and big[:131072] in before and big[262144:] in before  # the test would see them
    written = build(tmp_path, layers)
    data = written.path.read_bytes()
    for piece in (secret[:64], secret[-64:], big[:64], big[131072:][:64], big[-64:]):
        assert piece not in data
    assert written.repacked and NOISE[:2000] in data
    assert not differences(unpack(written.path, tmp_path / "out"), stack(layers))


def test_extra_members_are_added_on_top_and_follow_links(tmp_path):
    layers = [[folder(b"usr/lib"), symlink(b"lib", b"usr/lib"), file(b"usr/lib/x", b"old")]]
    packs = make_packs(tmp_path, layers)
    extra = [file(b"lib/x", b"new"), file(b"etc/added", b"1")]
    written = write_image(packs, tmp_path / "image", epoch=EPOCH, all_root=False, extra=extra)
    found = unpack(written.path, tmp_path / "out")
    expected = stack([*layers, [file(b"usr/lib/x", b"new"), file(b"etc/added", b"1")]])
    assert not differences(found, expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.pack", "image", "out"]  # nothing temporary is left


@pytest.mark.parametrize("layers", [[[]], [[folder(b"", 0o700, uid=3, mtime=77)]], [[], [file(b"x", b"")]]])
def test_nearly_empty_images(tmp_path, loop, layers):
    written = build(tmp_path, layers)
    assert not differences(unpack(written.path, tmp_path / "out"), stack(layers))
    assert not differences(mounted(written.path, tmp_path / "mnt"), stack(layers))


def test_a_tree_from_this_machine(tmp_path):
    """Real files: Python's own library, read back byte by byte."""
    root = Path(os.__file__).parent / "json"
    layer = [
        (file if path.is_file() else folder)(
            os.fsencode(path.relative_to(root.parent)), **({"content": path.read_bytes()} if path.is_file() else {})
        )
        for path in sorted(root.rglob("*"))
        if path.is_file() or path.is_dir()
    ]
    written = build(tmp_path, [layer])
    assert not differences(unpack(written.path, tmp_path / "out"), stack([layer]))


def test_one_pack_twice_in_a_stack(tmp_path):
    layer = [file(b"a", NOISE), file(b"b", b"tail")]
    pack = make_packs(tmp_path, [layer])[0]
    packs = [pack, make_packs(tmp_path / "..", [[gone(b"a")]])[0], pack]
    written = write_tree(packs, merge_packs(packs), tmp_path / "image", epoch=EPOCH, all_root=False)
    assert not differences(unpack(written.path, tmp_path / "out"), stack([layer]))
