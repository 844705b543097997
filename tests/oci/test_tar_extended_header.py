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
    records = [(key, b"") for key in (b"uid", b"gid", b"mtime", b"size")]
    assert only(pax(*records) + file(b"x")).path == b"x"


@pytest.mark.parametrize("key", [b"path", b"linkpath"])
def test_an_empty_name_in_a_record(key: bytes) -> None:
    """GNU tar takes it in place of the one in the header, and Go does not."""
    with pytest.raises(LayerError, match="a name in an extended header is empty"):
        read(pax((key, b"")) + header(b"e", b"2", link=b"x") + END)


def long_name(name: bytes, kind: bytes = b"L") -> bytes:
    """Return the header that GNU tar puts before a member with a long name, or the target of a link."""
    return file(b"././@LongLink", name, kind)


def test_global_headers() -> None:
    """git archive writes the commit. What GNU tar would apply to all members, and Go to none, is refused."""
    archive = pax((b"comment", b"c" * 40), (b"VENDOR.key", b"x"), kind=b"g")
    members = read(archive + file(b"a") + archive + file(b"b") + END).members
    assert [member.path for member in members] == [b"a", b"b"]
    for key in (b"path", b"linkpath", b"size", b"uid", b"gid", b"mtime", b"GNU.sparse.map", b"SCHILY.xattr.user.k"):
        with pytest.raises(LayerError, match="for all its members"):
            read(pax((key, b"1"), kind=b"g") + file(b"a") + END)


@pytest.mark.parametrize(
    "first", [pax((b"path", b"evil")), long_name(b"evil"), long_name(b"evil", b"K")], ids=["pax", "name", "link"]
)
def test_a_global_header_before_a_member_that_another_header_describes(first: bytes) -> None:
    """GNU tar applies the first header to the member, and Go forgets it."""
    assert read(first + file(b"a") + END).members
    with pytest.raises(LayerError, match="between a member and its extended header"):
        read(first + pax((b"comment", b"x"), kind=b"g") + file(b"a") + END)


@pytest.mark.parametrize(
    "first", [pax((b"path", b"evil")), long_name(b"evil"), long_name(b"evil", b"K")], ids=["pax", "name", "link"]
)
def test_a_label_before_a_member_that_another_header_describes(first: bytes) -> None:
    """Go and GNU tar apply the first header to the label."""
    with pytest.raises(LayerError, match="volume label"):
        read(first + header(b"label", b"V") + header(b"a", b"2", link=b"b") + END)


def test_an_extended_header_of_solaris() -> None:
    with pytest.raises(LayerError, match="an extended header of Solaris"):
        read(pax((b"path", b"evil"), kind=b"X") + file(b"a") + END)


@pytest.mark.parametrize("name", [b"", b"\0"])
def test_an_empty_long_name(name: bytes) -> None:
    with pytest.raises(LayerError, match="a long name is empty"):
        read(long_name(name) + header(b"folder/", b"5") + END)


@pytest.mark.parametrize("kind", [b"L", b"K"])
def test_a_long_name_without_its_end(kind: bytes) -> None:
    """Go reads as many bytes as its header states, GNU tar up to the next null byte."""
    whole = long_name(b"n" * 120, kind)
    assert read(whole + file(b"a") + END).members
    with pytest.raises(LayerError, match="a long name has no null byte at its end"):
        read(whole[: 512 + 120] + b"m" + whole[512 + 121 :] + file(b"a") + END)


@pytest.mark.parametrize("name", [b"usr/.wh..wh.x/file", b"usr/.wh..wh.x", b"a/.wh..wh..opq/b", b"a/.wh..wh.plnk/b"])
def test_names_of_aufs_within_folders(name: bytes) -> None:
    """Docker makes them, or removes another file; others leave them out."""
    with pytest.raises(LayerError, match="a name of aufs within a folder"):
        read(file(name) + END)
    assert len(read(file(b"a/.wh..wh..opq") + file(b".wh..wh.plnk/x") + file(b".wh..wh..opq") + END).members) == 3


def test_extended_headers_by_the_thousand() -> None:
    """Each is small; they are not collected."""
    with pytest.raises(LayerError, match="two extended headers"):
        read(pax((b"mtime", b"1")) * 2 + file(b"a") + END)
    assert len(read(pax((b"comment", b"1"), kind=b"g") * 500 + file(b"a") + END).members) == 1


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
