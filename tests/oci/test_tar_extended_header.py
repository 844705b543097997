"""Extended headers of tars: what they may specify, for one member or for all, and what is refused."""

from __future__ import annotations

import pytest

from envbuild.oci.tar.member import Kind, Member
from envbuild.oci.tar.reader import LayerError
from tests.support.tars import END, file, header, octal, only, padded, pax, read

pytestmark = pytest.mark.unit


def test_extended_headers() -> None:
    records = [
        (b"hdrcharset", b"BINARY"),
        (b"path", b"./\xff/new\nname"),
        (b"uid", b"4000000000"),
        (b"gid", b"5"),
        (b"mtime", b"-1.5"),
        (b"comment", b"x"),
        (b"SCHILY.xattr.user.one", b"\0\n=\xff"),
        (b"SCHILY.xattr.user.empty", b""),
        (b"LIBARCHIVE.xattr.user.one", b"AAAA"),
        (b"LIBARCHIVE.xattr.user.two", b"AAAA"),  # Go and GNU tar make none of it
        (b"size", b"3"),
    ]
    found = read(pax(*records) + header(b"short", size=octal(9)) + padded(b"abc") + file(b"next") + END)
    member = found.members[0]
    assert (member.path, member.uid, member.gid, member.mtime) == (b"\xff/new\nname", 4_000_000_000, 5, -2)
    assert member.xattrs == {b"user.one": b"\0\n=\xff", b"user.empty": b""}
    assert found.content(0) == b"abc" and found.members[1] == Member(b"next", Kind.FILE, 0o644)


def test_empty_records_change_nothing() -> None:
    records = [(key, b"") for key in (b"path", b"uid", b"gid", b"mtime", b"size", b"linkpath")]
    assert only(pax(*records) + file(b"x")).path == b"x"


def test_global_headers() -> None:
    archive = pax((b"comment", b"c" * 40), (b"mtime", b"77"), (b"gid", b"9"), kind=b"g")
    archive += file(b"a") + pax((b"mtime", b"78.9"), (b"gid", b"")) + file(b"b") + pax((b"gid", b"3"), kind=b"g")
    members = read(archive + file(b"c") + END).members
    assert [(member.mtime, member.gid) for member in members] == [(77, 9), (78, 0), (77, 3)]
    for key in (b"path", b"linkpath", b"size", b"GNU.sparse.map"):
        with pytest.raises(LayerError, match="for all its members"):
            read(pax((key, b"1"), kind=b"g") + file(b"a") + END)


def test_extended_headers_by_the_thousand() -> None:
    """Each is small; they are not collected."""
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
    "record",
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
    ],
)
def test_invalid_records_are_refused(record: tuple[bytes, bytes]) -> None:
    with pytest.raises(LayerError):
        read(pax(record) + file(b"a") + END)


def test_names_that_are_specified_twice() -> None:
    long = file(b"././@LongLink", b"n" * 150 + b"\0", b"L")
    assert only(long + file(b"x")).path == b"n" * 150
    with pytest.raises(LayerError, match="two ways"):
        read(long + pax((b"path", b"m")) + file(b"x") + END)
    for rest in (long, pax((b"path", b"x")), file(b"././@LongLink", b"n\0", b"K")):
        with pytest.raises(LayerError, match="ends after an extended header"):
            read(file(b"x") + rest + END)
