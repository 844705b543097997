"""An image with every corner of the format, for the tests that read squashfs files."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from envbuild.oci.tar.member import Kind, Member
from envbuild.squashfs.codec import DEFAULTS
from envbuild.squashfs.read.inode import DIRECTORY
from envbuild.squashfs.read.tree import SquashTree
from tests.support.packs import file, folder, hard, pack, symlink
from tests.support.squashfs_image import write_image

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


def hard_links(tree: SquashTree) -> dict[int, list[bytes]]:
    """Return reference → paths of every inode with more than one name, except directories."""
    found: dict[int, list[bytes]] = {}
    for path, inode in tree.walk():
        if inode.links > 1 and inode.kind != DIRECTORY:
            found.setdefault(inode.reference, []).append(path)
    return {reference: paths for reference, paths in found.items() if len(paths) > 1}
