"""The tar reader: every form that GNU tar, Python and hands write, and what is refused."""

from __future__ import annotations

import base64
import io
import os
import stat
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

import tarkit as kit
from tarkit import END, TYPES, file, header, octal, padded, pax, read

from envbuild.errors import InputError
from envbuild.oci.member import Kind, Member
from envbuild.oci.tarread import LayerError
from envbuild.oci.tarsink import TarSink

pytestmark = pytest.mark.unit
MEGA = 1 << 20
STEPS = [1 << 30, 700, 512, 100, 1]  # bytes in which a stream comes


def gnu(folder: Path, *options: str) -> bytes:
    """What GNU tar makes of a folder."""
    names = sorted(path.name for path in folder.iterdir())
    command = ["tar", "-C", str(folder), "-cf", "-", "--sort=name", *options, "--"]
    return subprocess.run([*command, *names], check=True, capture_output=True).stdout


def holes(path: Path, size: int, *parts: tuple[int, bytes]) -> None:
    with path.open("wb") as target:
        for offset, content in parts:
            target.seek(offset)
            target.write(content)
        target.truncate(size)


# GNU tar
@pytest.mark.parametrize("form", ["v7", "ustar", "gnu", "oldgnu", "pax", "posix"])
def test_what_gnu_tar_writes(tmp_path: Path, form: str) -> None:
    (tmp_path / "d/sub").mkdir(parents=True)
    (tmp_path / "d/sub").chmod(0o1770)
    (tmp_path / "d/file").write_bytes(b"content" * 1000)
    (tmp_path / "d/empty").touch(0o4711)
    (tmp_path / "d/empty").chmod(0o4711)
    (tmp_path / "d/hard").hardlink_to(tmp_path / "d/file")
    (tmp_path / "d/link").symlink_to("../some where/else")
    if form != "v7":
        os.mkfifo(tmp_path / "d/pipe")
    os.utime(tmp_path / "d/file", (1_234_567_890, 1_234_567_890))
    found = read(gnu(tmp_path, f"--format={form}", "--owner=7", "--group=8"))
    assert all((member.uid, member.gid) == (7, 8) for member in found.members)
    kinds = {member.path: member.kind for member in found.members}
    assert kinds == {
        b"d": Kind.DIR,
        b"d/sub": Kind.DIR,
        b"d/empty": Kind.FILE,
        b"d/file": Kind.FILE,
        b"d/hard": Kind.HARDLINK,
        b"d/link": Kind.SYMLINK,
    } | ({} if form == "v7" else {b"d/pipe": Kind.FIFO})
    member, content = found.named(b"d/file")
    assert content == b"content" * 1000 and member.mtime == 1_234_567_890
    assert found.named(b"d/empty")[0].mode == 0o4711 and found.named(b"d/sub")[0].mode == 0o1770
    assert found.named(b"d/hard")[0].link == b"d/file" and found.named(b"d/link")[0].link == b"../some where/else"


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "options",
    [
        ["--format=gnu"],
        ["--format=pax", "--sparse-version=0.0"],
        ["--format=pax", "--sparse-version=0.1"],
        ["--format=pax", "--sparse-version=1.0"],
    ],
    ids=" ".join,
)
def test_sparse_files(tmp_path: Path, options: Sequence[str], step: int) -> None:
    pages = [(number * 65536, bytes([number]) * 4096) for number in range(1, 40)]  # more than one block of a map
    holes(tmp_path / "a", 3 * MEGA, *pages)
    holes(tmp_path / "b", 3 * MEGA)  # nothing but a hole
    holes(tmp_path / "c", MEGA + 5, (0, b"begin"), (MEGA, b"end!!"))
    (tmp_path / "d").write_bytes(b"not sparse")
    archive = gnu(tmp_path, "-S", *options)
    assert len(archive) < MEGA, "GNU tar stored them whole"
    found = read(archive, step)
    assert [member.path for member in found.members] == [b"a", b"b", b"c", b"d"]
    for number, name in enumerate("abcd"):
        assert found.content(number) == (tmp_path / name).read_bytes(), name
    assert any(isinstance(part, int) for part in found.contents[0])


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_sparse_files_over_8_gib(tmp_path: Path, form: str) -> None:
    size = 9 << 30
    holes(tmp_path / "big", size, (5 << 30, b"x" * 4096))
    found = read(gnu(tmp_path, "-S", f"--format={form}"))
    (member,), (parts,) = found.members, found.contents
    assert member.size == size and member.path == b"big"
    where = 0
    for part in parts:
        if isinstance(part, bytes):
            assert where == 5 << 30 and part == b"x" * 4096
        where += part if isinstance(part, int) else len(part)
    assert where == size


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_names_of_every_kind(tmp_path: Path, form: str) -> None:
    odd = [b"new\nline", b"\xff\xfe", "ü".encode(), b"n" * 255, b" ", b"-x", b'"\\']
    deep = b"/".join([b"p" * 200] * 10) + b"/file"
    root = os.fsencode(tmp_path)
    for name in [*odd, deep]:
        os.makedirs(os.path.dirname(root + b"/" + name), exist_ok=True)  # noqa: PTH103, PTH120
        Path(os.fsdecode(root + b"/" + name)).write_bytes(name)
    os.symlink(b"\xfe" * 300, root + b"/link")  # noqa: PTH211
    found = read(gnu(tmp_path, f"--format={form}"))
    for name in [*odd, deep]:
        assert found.named(name)[1] == name
    assert found.named(b"link")[0].link == b"\xfe" * 300


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away and make devices")
@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_large_owners_and_old_times(tmp_path: Path, form: str) -> None:
    (tmp_path / "file").touch()
    os.chown(tmp_path / "file", (1 << 32) - 10, 1 << 30)
    os.utime(tmp_path / "file", ns=(0, -86_400_500_000_000))
    member = read(gnu(tmp_path, f"--format={form}")).members[0]
    assert (member.uid, member.gid) == ((1 << 32) - 10, 1 << 30)
    assert member.mtime == -86_401, "the second in which it was, as in stat(2)"


def test_xattrs_that_gnu_tar_writes(tmp_path: Path) -> None:
    value = b"\0\xff\n=binary"
    (tmp_path / "file").touch()
    os.setxattr(tmp_path / "file", "user.note", value)
    member = read(gnu(tmp_path, "--format=pax", "--xattrs")).members[0]
    assert member.xattrs == {b"user.note": value}


def test_the_label_of_a_volume(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert [member.path for member in read(gnu(tmp_path, "--format=gnu", "--label=name")).members] == [b"file"]


def test_backups_are_no_layers(tmp_path: Path) -> None:
    (tmp_path / "content/d").mkdir(parents=True)
    with pytest.raises(LayerError, match="backup"):
        read(gnu(tmp_path / "content", "--format=gnu", f"--listed-incremental={tmp_path / 'state'}"))


# by hand
def only(content: bytes) -> Member:
    (member,) = read(content + END).members
    return member


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (b"./", b""),
        (b".", b""),
        (b"/", b""),
        (b"./a/", b"a"),
        (b"/a", b"a"),
        (b"a//b/./c/", b"a/b/c"),
        (b"..a/...", b"..a/..."),
    ],
)
def test_paths_of_folders(name: bytes, path: bytes) -> None:
    assert only(header(name, b"5")).path == path


@pytest.mark.parametrize("name", [b"..", b"../a", b"a/../b", b"a/..", b"/../a", b"./..", b"a/b/../../../c"])
def test_paths_that_lead_out(name: bytes) -> None:
    for archive in (file(name), pax((b"path", name)) + file(b"x"), file(b"L", name + b"\0", b"L") + file(b"x")):
        with pytest.raises(LayerError, match="leads out of it"):
            read(archive + END)


@pytest.mark.parametrize(
    "name", [b"n" * 256, b"/".join([b"n" * 200] * 21), b"a\0b", b"x/" + b"n" * 256, b"x/y\0z", b"a/b\0/c"]
)
def test_paths_that_cannot_be(name: bytes) -> None:
    with pytest.raises(LayerError, match=r"possible|NUL"):
        read(file(b"x/first") + pax((b"path", name)) + file(b"x") + END)


def test_the_longest_path() -> None:
    name = b"/".join([b"n" * 255] * 16)
    assert len(name) == 4095 and only(pax((b"path", name)) + file(b"x")).path == name


def test_a_long_path_below_a_known_folder() -> None:
    folder = b"/".join([b"n" * 255] * 15) + b"/" + b"m" * 200
    archive = pax((b"path", folder + b"/a")) + file(b"x")
    with pytest.raises(LayerError, match="4096 are possible"):
        read(archive + pax((b"path", folder + b"/" + b"n" * 255)) + file(b"x") + END)


@pytest.mark.parametrize(
    ("link", "path"),
    [(b"a", b"a"), (b"/a/b", b"a/b"), (b"./a", b"a"), (b"a/../b", b"b"), (b"/z", b"z"), (b"a/b/..//c/", b"a/c")],
)
def test_hard_links(link: bytes, path: bytes) -> None:
    """Also before the file that they name, which the reader does not look for."""
    assert only(header(b"x", b"1", link=link)).link == path


@pytest.mark.parametrize("link", [b"..", b"../a", b"/../a", b"a/../../b", b"", b"/", b"a/..", b"x", b"./y/../x"])
def test_hard_links_that_name_nothing(link: bytes) -> None:
    with pytest.raises(LayerError, match="another name of"):
        read(header(b"x", b"1", link=link) + END)


def test_targets_of_symlinks_are_data() -> None:
    assert only(header(b"x", b"2", link=b"../../../etc/./passwd/")).link == b"../../../etc/./passwd/"
    for archive in (header(b"x", b"2"), pax((b"linkpath", b"a" * 4096)) + header(b"x", b"2")):
        with pytest.raises(LayerError, match="target that cannot be"):
            read(archive + END)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (b"0000644\0", 0o644),
        (b"000644 \0", 0o644),
        (b"   644 \0", 0o644),
        (b"0100644\0", 0o644),
        (b"00100755", 0o755),
        (b"\0" * 8, 0),
        (b" " * 8, 0),
        (b"644\0junk", 0o644),
        (b"\x80\0\0\0\0\0\x01\xa4", 0o644),
    ],
)
def test_octal_fields(field: bytes, value: int) -> None:
    assert only(header(mode=field)).mode == value


@pytest.mark.parametrize("field", [b"0000_44\0", b"-000644\0", b"0o00644\0", b"+000644\0", b"0000648\0", b"64 4   \0"])
def test_fields_that_are_no_numbers(field: bytes) -> None:
    for archive in (header(mode=field), header(size=field.rjust(12, b"0")), header(mtime=field.rjust(12, b"0"))):
        with pytest.raises(LayerError, match="no number"):
            read(archive + END)


def test_numbers_in_base_256() -> None:
    def field(number: int) -> bytes:
        return bytes([0x80 if number >= 0 else 0xFF]) + number.to_bytes(11, "big", signed=True)

    assert only(header(mtime=field(-1))).mtime == -1
    assert only(header(mtime=field(1 << 40))).mtime == 1 << 40
    assert only(header(uid=b"\x80\0\0\0\xff\xff\xff\xfe")).uid == 0xFFFFFFFE
    assert only(header(mtime=b"777777777777")).mtime == 0o777777777777, "no room for a terminator"
    wrong = header(size=field(-1)), header(uid=b"\x80\0\0\0\xff\xff\xff\xff"), header(mode=b"\xff" * 8)
    for archive in (*wrong, header(mtime=field(1 << 63)), header(mtime=field(-(1 << 70)))):
        with pytest.raises(LayerError, match=r"size|user|mode|seconds"):
            read(archive + END)


@pytest.mark.parametrize("step", STEPS)
def test_what_lies_about_its_size(step: int) -> None:
    """Memory follows what is there, not what is said."""
    for size in (b"\x80" + bytes(3) + (1 << 60).to_bytes(8, "big"), octal(0o77777777777)):
        with pytest.raises(LayerError, match="ends in the middle of a file"):
            read(header(size=size) + b"x" * 3000, step)
    with pytest.raises(LayerError, match="cannot be"):
        read(header(size=b"\x80" + b"\x7f" * 11) + END, step)
    for kind in b"xgLK":
        with pytest.raises(LayerError, match="more than the 1048576 that are possible"):
            read(header(kind=bytes([kind]), size=octal(4 << 30)) + bytes(2048), step)
        with pytest.raises(LayerError, match="ends in the middle of a header"):
            read(header(kind=bytes([kind]), size=octal(MEGA)) + bytes(2048), step)


def test_types_that_are_files() -> None:
    for kind in (b"0", b"\0", b"7", b"Z", b"A", b"!", b"\xff"):
        found = read(file(b"x", b"content", kind) + file(b"y") + END)
        assert [member.kind for member in found.members] == [Kind.FILE] * 2
        assert found.content(0) == b"content"
    old = header(b"folder/", b"\0", magic=bytes(8))
    assert only(old).kind is Kind.DIR
    with pytest.raises(LayerError, match="has data"):
        read(file(b"folder/", b"x") + END)


def test_sizes_of_what_has_no_data() -> None:
    """Go and Python pass no data after these, whatever the header says."""
    for kind in b"123456":
        archive = header(b"x", bytes([kind]), size=octal(5000), link=b"y") + file(b"next", b"content") + END
        found = read(archive)
        assert [member.path for member in found.members] == [b"x", b"next"] and found.members[0].size == 0


def test_devices() -> None:
    member = only(header(b"null", b"3", device=b"0000001\x000000003\0"))
    assert (member.kind, member.device) == (Kind.CHAR, (1, 3))
    assert only(header(b"sda", b"4", device=b"0000010\x000000000\0")).device == (8, 0)
    with pytest.raises(LayerError, match="Linux does not have"):
        read(header(b"sda", b"4", device=b"7777777\x000000000\0") + END)


def test_prefixes() -> None:
    assert only(header(b"name", prefix=b"some/folder")).path == b"some/folder/name"
    assert only(header(b"n" * 100, prefix=b"p" * 155)).path == b"p" * 155 + b"/" + b"n" * 100
    assert only(header(b"name", prefix=b"x", magic=b"ustar  \0")).path == b"name", "GNU tar has other things there"
    star = b"p".ljust(131, b"\0") + b"00000000000\x0000000000000\0" + bytes(8) + b"tar\0" + bytes(0)
    assert only(header(b"name", tail=star[:163] + b"tar\0")).path == b"p/name"


def test_extended_headers() -> None:
    said = [
        (b"hdrcharset", b"BINARY"),
        (b"path", b"./\xff/new\nname"),
        (b"uid", b"4000000000"),
        (b"gid", b"5"),
        (b"mtime", b"-1.5"),
        (b"comment", b"x"),
        (b"SCHILY.xattr.user.one", b"\0\n=\xff"),
        (b"SCHILY.xattr.user.empty", b""),
        (b"LIBARCHIVE.xattr.user.one", b"AAAA"),
        (b"LIBARCHIVE.xattr.user.t%77o", base64.b64encode(b"\0two").rstrip(b"=")),
        (b"size", b"3"),
    ]
    found = read(pax(*said) + header(b"short", size=octal(9)) + padded(b"abc") + file(b"next") + END)
    member = found.members[0]
    assert (member.path, member.uid, member.gid, member.mtime) == (b"\xff/new\nname", 4_000_000_000, 5, -2)
    assert member.xattrs == {b"user.one": b"\0\n=\xff", b"user.empty": b"", b"user.two": b"\0two"}
    assert found.content(0) == b"abc" and found.members[1] == Member(b"next", Kind.FILE, 0o644)


def test_empty_records_change_nothing() -> None:
    said = [(key, b"") for key in (b"path", b"uid", b"gid", b"mtime", b"size", b"linkpath")]
    assert only(pax(*said) + file(b"x")).path == b"x"


def test_global_headers() -> None:
    archive = pax((b"comment", b"c" * 40), (b"mtime", b"77"), (b"gid", b"9"), kind=b"g")
    archive += file(b"a") + pax((b"mtime", b"78.9"), (b"gid", b"")) + file(b"b") + pax((b"gid", b"3"), kind=b"g")
    members = read(archive + file(b"c") + END).members
    assert [(member.mtime, member.gid) for member in members] == [(77, 9), (78, 0), (77, 3)]
    for key in (b"path", b"linkpath", b"size", b"GNU.sparse.map"):
        with pytest.raises(LayerError, match="gives all its members one"):
            read(pax((key, b"1"), kind=b"g") + file(b"a") + END)


def test_extended_headers_by_the_thousand() -> None:
    """Each is small; together they are not kept."""
    with pytest.raises(LayerError, match="two extended headers"):
        read(pax((b"mtime", b"1")) * 2 + file(b"a") + END)
    archive = b"".join(pax((b"k%d" % number, b"v"), kind=b"g") for number in range(101))
    for wrong in (archive, pax(*((b"k%d" % number, b"v") for number in range(101)), kind=b"g")):
        with pytest.raises(LayerError, match="more than 100 short records"):
            read(wrong + file(b"a") + END)
    with pytest.raises(LayerError, match="more than 100 short records"):
        read(pax((b"SCHILY.xattr.user.a", b"v" * 1001), kind=b"g") + file(b"a") + END)
    assert len(read(pax((b"mtime", b"1"), kind=b"g") * 500 + file(b"a") + END).members) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"x",
        b"5 a=b",
        b"5 a=b\n",
        b"6 a=b\nrest",
        b"6 a b\n",
        b"5 =b\n",
        b"0 a=b\n",
        b"1 a=b\n",
        b"-6 a=b\n",
        b"99 a=b\n",
        b"9999999999999 a=b\n",
        b"6 a=bc",
        b" 6 a=b\n",
    ],
)
def test_damaged_records(body: bytes) -> None:
    with pytest.raises(LayerError, match="damaged"):
        read(file(b"pax", body, b"x") + file(b"a") + END)


@pytest.mark.parametrize(
    "said",
    [
        (b"uid", b"-1"),
        (b"uid", b"0x10"),
        (b"uid", b"1" * 30),
        (b"uid", b"4294967295"),
        (b"size", b"1_0"),
        (b"size", b"9" * 19 + b"9"),
        (b"mtime", b"nan"),
        (b"mtime", b"1e9"),
        (b"mtime", b"9" * 20),
        (b"SCHILY.xattr.", b"x"),
        (b"SCHILY.xattr." + b"n" * 256, b"x"),
        (b"SCHILY.xattr.user.a\0b", b"x"),
        (b"SCHILY.xattr.user.a", b"x" * 65537),
        (b"LIBARCHIVE.xattr.user.a", b"no base64!"),
    ],
)
def test_records_that_cannot_be(said: tuple[bytes, bytes]) -> None:
    with pytest.raises(LayerError):
        read(pax(said) + file(b"a") + END)


def test_names_that_are_given_twice() -> None:
    long = file(b"././@LongLink", b"n" * 150 + b"\0", b"L")
    assert only(long + file(b"x")).path == b"n" * 150
    with pytest.raises(LayerError, match="two ways"):
        read(long + pax((b"path", b"m")) + file(b"x") + END)
    for rest in (long, pax((b"path", b"x")), file(b"././@LongLink", b"n\0", b"K")):
        with pytest.raises(LayerError, match="ends after an extended header"):
            read(file(b"x") + rest + END)


def test_duplicates_come_both() -> None:
    found = read(file(b"a", b"1") + header(b"a", b"5") + file(b"a", b"2") + END)
    assert [member.kind for member in found.members] == [Kind.FILE, Kind.DIR, Kind.FILE]


# sparse maps that lie
def version_1(text: bytes, real: bytes = b"8192", stored: int = 0) -> bytes:
    said = [(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.realsize", real)]
    return pax(*said) + header(b"s", size=octal(len(padded(text)) + stored)) + padded(text) + b"x" * stored + END


def version_0(real: bytes, *said: tuple[bytes, bytes], stored: int = 0) -> bytes:
    return pax((b"GNU.sparse.size", real), *said) + file(b"s", b"x" * stored) + END


@pytest.mark.parametrize(
    "archive",
    [
        version_1(b"1\n0\n512\n", stored=100),
        version_1(b"1\n8000\n512\n", stored=512),
        version_1(b"2\n1024\n512\n0\n512\n", stored=1024),
        version_1(b"2\n0\n512\n100\n512\n", stored=1024),
        version_1(b"-1\n"),
        version_1(b"x" * 600),
        version_1(b"9" * 18 + b"\n" + b"0\n0\n" * 200),
        version_1(b"1\n" + b"0" * 30 + b"\n5\n"),
        version_1(b"0\n", real=b"9" * 20),
        version_1(b"0\n", real=b"x"),
        version_0(b"10", (b"GNU.sparse.offset", b"0"), stored=1),
        version_0(b"10", (b"GNU.sparse.numbytes", b"0")),
        version_0(b"10", (b"GNU.sparse.map", b"1,2,3"), stored=2),
        version_0(b"10", (b"GNU.sparse.map", b"1,,3"), stored=2),
        version_0(b"10", (b"GNU.sparse.map", b"1,18446744073709551615"), stored=2),
        version_0(b"10", (b"GNU.sparse.major", b"2"), stored=2),
        pax((b"GNU.sparse.name", b"x")) + file(b"s") + END,
        pax((b"GNU.sparse.size", b"5")) + kit.old_sparse() + END,
        kit.old_sparse(size=octal(512)) + END,
        kit.old_sparse(real=b"00000000100\0") + END,
        kit.old_sparse(more=b"\1"),
        header(b"s", b"S"),
    ],
)
def test_sparse_files_that_are_damaged(archive: bytes) -> None:
    with pytest.raises(LayerError):
        read(archive)


def test_sparse_files_that_are_sound() -> None:
    pair = (b"GNU.sparse.offset", b"8190"), (b"GNU.sparse.numbytes", b"2")
    for archive, wanted in (
        (version_1(b"2\n1024\n512\n4096\n512\n", stored=1024), bytes(1024) + b"x" * 512 + bytes(2560) + b"x" * 512),
        (version_0(b"8192", (b"GNU.sparse.map", b"0,3"), stored=3), b"xxx"),
        (version_0(b"8192", *pair, stored=2), bytes(8190) + b"xx"),
        (kit.old_sparse() + END, bytes(1024) + b"y" * 512 + bytes(2560) + b"y" * 512),
    ):
        assert read(archive).content(0) == wanted.ljust(8192, b"\0")


def test_maps_that_never_end() -> None:
    """A map, and what is kept of it, is bounded by what GNU tar's users have, not by the archive."""
    block = b"".join(b"%011o\0" % 0 for _ in range(42)) + b"\1" + bytes(7)
    with pytest.raises(LayerError, match="longer than 1048576"):
        read(kit.old_sparse(more=b"\1")[:512] + block * 3000)
    with pytest.raises(LayerError, match="longer than 1048576"):
        read(version_1(b"9999999\n" + b"0\n" * 600_000))


def test_holes_are_bounded() -> None:
    """Each of these few bytes would be terabytes in a list of blocks."""
    one = pax((b"GNU.sparse.size", b"%d" % (3 << 40))) + file(b"s")
    assert read(one + END).members[0].size == 3 << 40
    with pytest.raises(LayerError, match="4 TiB of holes"):
        read(one + one + END)


# ends
def test_ends() -> None:
    """Two blocks of zeros; fewer and more are taken, and only the padding of the last file may be missing."""
    whole = file(b"a", b"content")
    for end in (b"", bytes(512), END, bytes(513), bytes(10240), bytes(3 * MEGA)):
        assert len(read(whole + end).members) == 1
    assert read(b"").members == [] == read(END).members
    assert len(read(whole[: 512 + 7]).members) == 1
    for content, message in (
        (whole[: 512 + 6], "middle of a file"),
        (whole[:511], "middle of a header"),
        (whole + whole[:100], "middle of a header"),
        (whole + END + b"x", "goes on after its end"),
        (whole + END + bytes(3 * MEGA) + b"x", "goes on after its end"),
        (whole + bytes(512) + whole, "goes on after its end"),
        (b"hello" * 1000, "no tar"),
        (whole + b"\0" * 511 + b"\1", "no tar"),
    ):
        for step in STEPS[:3]:
            with pytest.raises(LayerError, match=message):
                read(content, step)


def test_sums() -> None:
    block = header(b"\xff\xfe" * 20)
    signed = sum(value - 256 if value > 127 else value for value in block[:148] + block[156:]) + 256
    assert only(block[:148] + b"%06o\0 " % signed + block[156:]).path == b"\xff\xfe" * 20
    for wrong in (block[:100] + b"1" + block[101:], block[:148] + b"%06o\0 " % (signed + 1) + block[156:]):
        with pytest.raises(LayerError, match="header at byte 0 is damaged"):
            read(wrong + END)


def test_errors_are_those_of_inputs() -> None:
    with pytest.raises(InputError) as caught:
        read(b"x" * 512)
    assert caught.value.exit_code == 10 and caught.value.hint


# any members
TEXT = st.binary(min_size=1, max_size=120).filter(
    lambda name: name not in (b".", b"..") and not set(name) & {0, ord("/")}
)
NAMES = st.lists(TEXT, min_size=1, max_size=4).map(b"/".join)
TIMES = st.integers(-(1 << 40), 1 << 40)
IDS = st.integers(0, (1 << 32) - 2)
MODES = st.integers(0, 0o7777)
XATTRS = st.dictionaries(
    st.binary(min_size=1, max_size=30).filter(lambda name: not set(name) & {0, ord("="), ord("\n")}),
    st.binary(max_size=50),
    max_size=3,
)
COMMON = {"path": NAMES, "mode": MODES, "uid": IDS, "gid": IDS, "mtime": TIMES, "xattrs": XATTRS}
TARGETS = st.binary(min_size=1, max_size=300).filter(lambda link: 0 not in link)
NUMBERS = st.tuples(st.integers(0, 4095), st.integers(0, (1 << 20) - 1))
CONTENTS = st.one_of(st.binary(max_size=600), st.integers(0, 3000).map(lambda size: b"c" * size))


def member(kind: Kind, content: bytes = b"", **fields: object) -> tuple[Member, bytes]:
    return Member(kind=kind, size=len(content), **fields), content  # type: ignore[arg-type]


MEMBERS = st.one_of(
    st.builds(member, st.just(Kind.FILE), CONTENTS, **COMMON),
    st.builds(member, st.sampled_from([Kind.DIR, Kind.FIFO]), **COMMON),
    st.builds(member, st.just(Kind.SYMLINK), link=TARGETS, **COMMON),
    st.builds(member, st.just(Kind.HARDLINK), link=NAMES.map(lambda name: name + b"/other"), **COMMON),
    st.builds(member, st.sampled_from([Kind.CHAR, Kind.BLOCK]), device=NUMBERS, **COMMON),
)


@settings(max_examples=200)
@given(st.lists(MEMBERS, max_size=6), st.sampled_from(STEPS))
def test_what_envbuild_writes(members: list[tuple[Member, bytes]], step: int) -> None:
    buffer = io.BytesIO()
    sink = TarSink(buffer)
    for item, content in members:
        sink.begin(item)
        sink.data(content)
        sink.end()
    sink.close()
    found = read(buffer.getvalue(), step)
    assert found.members == [item for item, _ in members]
    assert [found.content(number) for number in range(len(members))] == [content for _, content in members]


@settings(max_examples=200)
@given(
    st.lists(MEMBERS, max_size=6),
    st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    st.sampled_from(STEPS),
)
def test_what_python_writes(members: list[tuple[Member, bytes]], form: int, step: int) -> None:
    buffer, written = io.BytesIO(), []
    with tarfile.open(fileobj=buffer, mode="w", format=form, encoding="utf-8", errors="surrogateescape") as tar:
        for item, content in members:
            info = tarfile.TarInfo(os.fsdecode(item.path))
            info.type, info.linkname, info.size = TYPES[item.kind], os.fsdecode(item.link), item.size
            info.mode, info.uid, info.gid, info.mtime = item.mode, item.uid, item.gid, item.mtime
            info.devmajor, info.devminor = item.device
            try:
                tar.addfile(info, io.BytesIO(content))
            except ValueError:
                continue  # this format cannot say it
            written.append((item, content))
    found = read(buffer.getvalue(), step)
    assert [one.path for one in found.members] == [item.path for item, _ in written]
    for number, (item, content) in enumerate(written):
        wanted = Member(
            item.path, item.kind, item.mode, item.uid, item.gid, item.mtime, item.size, item.link, item.device
        )
        assert found.members[number] == wanted
        assert found.content(number) == content


def test_the_reader_sees_what_tarfile_sees(tmp_path: Path) -> None:
    """Python's own library, as far as it names things alike."""
    for number in range(50):
        folder = tmp_path / f"folder{number % 7}"
        folder.mkdir(exist_ok=True)
        (folder / f"file{number}").write_bytes(os.urandom(number * 97))
    archive = gnu(tmp_path, "--format=pax")
    found = read(archive)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for one, info in zip(found.members, tar.getmembers(), strict=True):
            assert (one.path, one.mode, one.size) == (os.fsencode(info.name), stat.S_IMODE(info.mode), info.size)
            assert one.mtime == int(info.mtime)
