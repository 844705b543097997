"""The reader against mksquashfs, unsquashfs and the kernel: every codec, block size and option that changes the form of
a file, on a tree with every corner."""

import datetime
import hashlib
import os
import re
import shutil
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from envbuild.cli.show_file import show_file
from envbuild.squashfs.read.inode import BLOCK_DEVICE, CHAR_DEVICE, DIRECTORY, FIFO, REGULAR, SOCKET, SYMLINK
from envbuild.squashfs.read.tree import SquashTree
from envbuild.verify.contents.metadata import read_image_texts
from tests.support.squashfs_image import compare_trees
from tests.support.squashfs_snapshot import differences, mounted

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(not shutil.which("mksquashfs"), reason="mksquashfs is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="owners and mounts need root"),
]

KINDS = {
    DIRECTORY: "dir", REGULAR: "file", SYMLINK: "symlink", BLOCK_DEVICE: "block", CHAR_DEVICE: "char", FIFO: "fifo",
}  # fmt: skip
TYPES = {
    DIRECTORY: stat.S_IFDIR, REGULAR: stat.S_IFREG, SYMLINK: stat.S_IFLNK, BLOCK_DEVICE: stat.S_IFBLK,
    CHAR_DEVICE: stat.S_IFCHR, FIFO: stat.S_IFIFO, SOCKET: stat.S_IFSOCK,
}  # fmt: skip
CODECS = ["gzip", "lzma", "lzo", "xz", "lz4", "zstd"]


def listed_entries(image: Path):
    """Return the reader's view, as `squashfs_snapshot.snapshot` returns that of a mounted tree."""
    with SquashTree(image) as tree:
        links: dict[int, list[bytes]] = {}
        for path, inode in tree.walk():
            links.setdefault(inode.reference, []).append(path)
        result = {}
        for path, inode in tree.walk():
            digest = hashlib.sha256()
            if inode.kind == REGULAR:
                for block in tree.content(inode).blocks():
                    digest.update(block)
            device = (inode.device >> 8 & 0xFFF, inode.device & 0xFF | inode.device >> 12 & 0xFFF00)
            result[path] = {
                "kind": KINDS[inode.kind],
                "mode": inode.mode,
                "owner": (inode.uid, inode.gid),
                "mtime": inode.mtime,
                "size": inode.size if inode.kind == REGULAR else 0,
                "link": inode.target,
                "device": device,
                "xattrs": tree.xattrs(inode),
                "content": digest.hexdigest(),
                "names": sorted(links[inode.reference]),
            }
    return result


def fields(found, expected):
    """Return what differs, field by field: whole entries are too long to read."""
    return [
        (path, name, found and found.get(name), expected and expected.get(name))
        for path, found, expected in differences(found, expected)
        for name in found or expected
        if not found or not expected or found[name] != expected[name]
    ]


@pytest.fixture(scope="module")
def corners(tmp_path_factory) -> Path:
    """Return a tree with every corner but devices, which a pseudo file of mksquashfs adds."""
    root = tmp_path_factory.mktemp("corners") / "root"
    (root / "etc").mkdir(parents=True)
    (root / "empty").mkdir(mode=0o1777)
    (root / "deep").joinpath(*["d"] * 60).mkdir(parents=True)
    noise = os.urandom(300_000)
    for name, content in {
        "noise": noise,
        "nothing": b"",
        "block": noise[:131072],
        "block and one": noise[:131073],
        "text": b"a line that shrinks\n" * 100_000,
        "code": Path("/bin/bash").read_bytes(),
        "huge": b"x" * 3_000_000,
        "etc/small": b"small",
    }.items():
        (root / name).write_bytes(content)
    with (root / "holes").open("wb") as file:
        file.write(b"begin")
        file.seek(9 << 20)
        file.write(noise[:70_000])
        file.truncate(40 << 20)
    os.link(root / "noise", root / "etc" / "noise again")
    (root / "far").symlink_to("l" * 4000)
    (root / "near").symlink_to("etc/small")
    os.mkfifo(root / "fifo")
    top = os.fsencode(root)
    for name in (b"\xff\xfe no text", b"n" * 255, b"line\nbreak", "blank ' \" \\ ü".encode()):
        Path(os.fsdecode(top + b"/" + name)).write_bytes(name)
    (root / "many").mkdir()
    for number in range(6000):  # a listing over 64 KiB, with an index
        (root / "many" / f"file-{number:05}").write_bytes(b"%d" % number)
    os.setxattr(root / "text", "user.note", b"a\0b\n")
    for name in ("etc", "noise", "etc/small"):  # one long value, stored once
        os.setxattr(root / name, "user.long", b"v" * 2000)
    os.setxattr(root / "far", "trusted.on", b"link", follow_symlinks=False)
    os.chown(root / "etc" / "small", 4_000_000_000, 70_000)
    (root / "code").chmod(0o6755)
    (root / "text").chmod(0o000)
    os.utime(root / "huge", (0, 2_300_000_000))
    return root


PSEUDO = ["-p", "null C 1000 666 0 0 1 3", "-p", "disk B 1000 600 0 6 259 70000"]  # the first number is the time


def made(root: Path, to: Path, *options: str) -> Path:
    command = ["mksquashfs", root, to, "-noappend", "-quiet", "-no-progress", *PSEUDO, *options]
    subprocess.run(command, check=True, capture_output=True)
    return to


@pytest.fixture(scope="module")
def kernel(corners, tmp_path_factory, loop):
    """Return the tree as the kernel shows it, of the form that every kernel reads."""
    place = tmp_path_factory.mktemp("kernel")
    return mounted(made(corners, place / "gzip.sqsh"), place / "mnt")


@pytest.mark.parametrize("block", ["131072", "1048576"])
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec(corners, kernel, tmp_path, codec, block):
    image = made(corners, tmp_path / "image.sqsh", "-comp", codec, "-b", block)
    assert not fields(listed_entries(image), kernel)


@pytest.mark.parametrize(
    "options",
    [
        ["-b", "4096"],
        ["-no-fragments"],
        ["-always-use-fragments"],
        ["-noI", "-noD", "-noF", "-noX", "-noId"],
        ["-no-exports", "-no-duplicates", "-nopad"],
        ["-comp", "lzo", "-noD"],  # enroot's own
        ["-comp", "lzo", "-Xalgorithm", "lzo1x_1"],
        ["-comp", "xz", "-Xbcj", "x86", "-Xdict-size", "100%"],
        ["-comp", "lz4", "-Xhc", "-b", "1M"],
        ["-comp", "zstd", "-Xcompression-level", "1", "-b", "1M"],
    ],
    ids=" ".join,
)
def test_every_form(corners, kernel, tmp_path, options):
    image = made(corners, tmp_path / "image.sqsh", *options)
    assert not fields(listed_entries(image), kernel)
    with SquashTree(made(corners, tmp_path / "other.sqsh", "-comp", "zstd")) as other, SquashTree(image) as tree:
        assert [change.path for change in compare_trees(other, tree)] == []


def test_no_attributes_and_one_owner(corners, kernel, tmp_path):
    image = made(corners, tmp_path / "image.sqsh", "-no-xattrs", "-all-root", "-comp", "zstd")
    plain = {path: {**entry, "xattrs": {}, "owner": (0, 0)} for path, entry in kernel.items()}
    assert not fields(listed_entries(image), plain)
    with SquashTree(image) as tree:
        assert list(tree.ids) == [0]


LINE = re.compile(rb"([-a-z]\S{9}) (\d+)/(\d+) +(\d+(?:, *\d+)?) (\d{4}-\d\d-\d\d \d\d:\d\d) squashfs-root(?:/(.*))?")


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_the_list_of_unsquashfs(corners, tmp_path, codec):
    image = made(corners, tmp_path / "image.sqsh", "-comp", codec)
    listing = subprocess.run(["unsquashfs", "-UTC", "-lln", image], capture_output=True, check=True).stdout
    listed = {}
    for line in listing.replace(b"line\nbreak", b"line\0break").splitlines():
        if found := LINE.fullmatch(line):
            mode, uid, gid, size, time, path = found.groups()
            path, _, target = (path or b"").partition(b" -> ")
            listed[path.replace(b"\0", b"\n")] = (mode.decode(), int(uid), int(gid), size, time.decode(), target)
    with SquashTree(image) as tree:
        entries = dict(tree.walk())
        assert listed.keys() == entries.keys()
        for path, inode in entries.items():
            mode, uid, gid, size, time, target = listed[path]
            assert mode == stat.filemode(TYPES[inode.kind] | inode.mode)
            assert (uid, gid, target) == (inode.uid, inode.gid, inode.target)
            assert time == f"{datetime.datetime.fromtimestamp(inode.mtime, datetime.UTC):%Y-%m-%d %H:%M}"
            if inode.kind == REGULAR:
                assert int(size) == inode.size


def test_a_socket(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    with socket.socket(socket.AF_UNIX) as end:
        here = Path.cwd()
        os.chdir(root)  # the address holds 107 bytes
        try:
            end.bind("s")
        finally:
            os.chdir(here)
    with SquashTree(made(root, tmp_path / "image.sqsh")) as tree:
        assert tree.lookup(b"s").kind == SOCKET


@pytest.mark.slow
def test_a_file_of_five_gigabytes_and_one_behind_it(tmp_path):
    """Sizes and positions over 32 bits; almost all of it is a hole."""
    root = tmp_path / "root"
    root.mkdir()
    with (root / "a").open("wb") as file:
        file.truncate(5 << 30)
        file.seek(4_800_000_000)
        file.write(b"island")
    with SquashTree(made(root, tmp_path / "image.sqsh")) as tree, tree.open(b"a") as stream:
        assert tree.lookup(b"a").size == 5 << 30
        stream.seek(4_799_999_990)
        assert stream.read(30) == bytes(10) + b"island" + bytes(14)
        stream.seek(-3, 2)
        assert stream.read() == bytes(3)


def test_metadata_of_an_image_that_enroot_imported(tmp_path):
    """Its default options, its /etc/rc with the line of provenance, labels and quoted words."""
    etc = tmp_path / "root" / "etc"
    etc.mkdir(parents=True)
    (etc / "environment").write_text("PATH=/opt/bin:/bin\nLANG=C.UTF-8\n")
    (etc / "rc").write_text(
        "# enroot-provenance: docker://registry.example#team/image:1\n# maintainer somebody\n# version 25.10\n\n"
        'mkdir -p "/workspace" 2> /dev/null\ncd "/workspace" && unset OLDPWD || exit 1\n\n'
        "if [ -s /etc/rc.local ]; then . /etc/rc.local; fi\n\n"
        "if [ $# -gt 0 ]; then\n    exec '/opt/entry.sh' \"$@\"\nelse\n    exec '/opt/entry.sh' 'bash'\nfi\n"
    )
    command = ["mksquashfs", tmp_path / "root", tmp_path / "image.sqsh", "-comp", "lzo", "-noD", "-all-root", "-quiet"]
    subprocess.run([*command, "-no-progress"], check=True, capture_output=True)
    summary = show_file(tmp_path / "image.sqsh")
    assert summary.data["provenance"] == "docker://registry.example#team/image:1"
    assert summary.data["labels"] == {"maintainer": "somebody", "version": "25.10"}
    assert summary.data["start"] == {
        "command": "'/opt/entry.sh' 'bash'",
        "workdir": "/workspace",
        "path": "/opt/bin:/bin",
    }
    assert summary.data["squashfs"]["codec"] == "lzo"
    assert "imported by enroot from docker://registry.example#team/image:1" in summary.text
    assert read_image_texts(tmp_path / "image.sqsh", "lock.yaml") == {}
