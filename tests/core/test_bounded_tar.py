"""Limits of extended headers: every reader of foreign tar archives that uses Python's."""

from __future__ import annotations

import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.build.engines import deb
from envbuild.build.engines.prepare_inputs import unpack_archive
from envbuild.core.bounded_tar import MAX_CHAIN, MAX_EXTENDED, MAX_TEXTS, BoundedTarFile, ImageTarFile
from envbuild.core.errors import InputError
from envbuild.oci.sources.archive import index_archive
from envbuild.oci.sources.archive_stream import index_compressed_archive
from tests.support.tar_headers import extended, hard_link, member, record, write
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.unit
LIMITED, SPARSE = ["pax", "name", "global", "chain"], ["sparse-1.0", "sparse-0.1", "sparse-0.0"]


def archives() -> list[bytes]:
    long = extended(b"x", record("comment", "a" * MAX_EXTENDED))
    name = extended(b"L", b"n" * (MAX_EXTENDED + 1))
    every = extended(b"g", b"".join(record(f"key{number}", "v") for number in range(200)))
    sparse = [
        record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0"),
        record("GNU.sparse.size", str(1 << 62)) + record("GNU.sparse.numblocks", "1") + record("GNU.sparse.map", "0,1"),
        record("GNU.sparse.size", str(1 << 62)) + record("GNU.sparse.offset", "0") + record("GNU.sparse.numbytes", "1"),
    ]
    chain = extended(b"x", record("comment", "a")) * (MAX_CHAIN + 1)
    return [head + member("file") + bytes(1024) for head in (long, name, every + member("first"), chain)] + [
        extended(b"x", maps) + member("control") + bytes(1024) for maps in sparse
    ]


def pack(content: bytes) -> bytes:
    return zlib.compress(content, wbits=31)


def read_deb(path: Path) -> None:
    content = path.read_bytes()
    ar = b"!<arch>\n" + b"%-16s%-12d%-6d%-6d%-8o%-10d`\n" % (b"control.tar", 0, 0, 0, 0o644, len(content)) + content
    deb.read_control(write(path.with_suffix(".deb"), ar))


@pytest.mark.parametrize("content", archives(), ids=[*LIMITED, *SPARSE])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_an_archive_of_an_image_has_limits(tmp_path: Path, content: bytes, packed: bool) -> None:
    path = write(tmp_path / "x", pack(content) if packed else content)
    with pytest.raises(InputError):
        (index_compressed_archive if packed else index_archive)(path)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_many_members_of_an_archive_of_an_image_end_it_early(tmp_path: Path, packed: bool) -> None:
    """A million of them have 50 kB where they are compressed."""
    content = b"".join(member(f"{number}") for number in range(ImageTarFile.most_members + 1))
    path = write(tmp_path / "x", pack(content) if packed else content)
    with pytest.raises(InputError, match="more than 100000 members"):
        (index_compressed_archive if packed else index_archive)(path)


def test_headers_of_which_nothing_remains_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name ends at its first zero: 680 kB of zeros, compressed, have 14 GB."""
    monkeypatch.setattr("envbuild.core.bounded_tar.MAX_HEADERS", 8 << 20)
    content = b"".join(extended(b"L", b"%d" % number + bytes((1 << 20) - 2)) + member("b") for number in range(12))
    with pytest.raises(InputError, match="headers have more than"):
        index_compressed_archive(write(tmp_path / "x", pack(content)))


@pytest.mark.parametrize("kind", [b"L", b"K", b"x"])
def test_the_texts_of_all_members_have_a_limit(kind: bytes, tmp_path: Path) -> None:
    """Each is below that of one header, and `tarfile` holds them all: 1,000 have 50 kB where they are compressed."""
    text = record("comment", "a" * (1 << 19)) if kind == b"x" else b"n" * (1 << 19)
    packer = zlib.compressobj(1, wbits=31)
    with (tmp_path / "x").open("wb") as file:
        for number in range(MAX_TEXTS // (1 << 19) + 1):
            own = b"%d" % number + text[3:] if kind == b"L" else text  # a name is one of one file
            file.write(packer.compress(extended(kind, own) + member(f"file-{number}")))
        file.write(packer.flush())
    (tmp_path / "out").mkdir()
    match = "a name of 524288 characters" if kind == b"L" else f"more than {MAX_TEXTS} bytes"
    with pytest.raises(InputError, match=match.replace("524288", "[0-9]*")):
        index_compressed_archive(tmp_path / "x")
    with pytest.raises(InputError):
        unpack_archive(tmp_path / "x", "x", tmp_path / "out")


@pytest.mark.parametrize("content", archives()[:4], ids=LIMITED)
@pytest.mark.parametrize("reader", [read_deb, lambda path: unpack_archive(path, "x", path.parent / "out")])
def test_other_archives_have_limits(tmp_path: Path, content: bytes, reader: Callable[[Path], None]) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError):
        reader(write(tmp_path / "x.tar", content))


@pytest.mark.parametrize("content", archives()[4:], ids=SPARSE)
def test_no_file_is_sparse(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="is a sparse file"):
        read_deb(write(tmp_path / "x.tar", content))
    with pytest.raises(InputError, match="is a sparse file"), ends_within(20):
        unpack_archive(tmp_path / "x.tar", "x.tar", tmp_path / "out")


def test_a_source_that_unpacks_to_far_more_than_its_size_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envbuild.core.bombs.SUSPECT", 1 << 20)
    large = member("top/large", 2 << 20) + bytes((2 << 20) + 1024)
    copied = [hard_link(f"top/{number}", "top/large") for number in range(3)]
    copies = b"".join(copied) + member("top/large", 600_000) + bytes(600_064 + 1024)  # a link to a later file
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("top/large", bytes(4 << 20))
    for number, content in enumerate([pack(large), pack(copies), zipped.getvalue()]):
        target = tmp_path / str(number)
        target.mkdir()
        with pytest.raises(InputError, match="unpack to more than"):
            unpack_archive(write(tmp_path / "x", content), "x.zip" if number == 2 else "x.tar", target)
        assert sum(path.stat().st_size for path in target.rglob("*")) < 3 << 20
    fine = tmp_path / "fine"
    fine.mkdir()
    unpack_archive(write(tmp_path / "x", pack(member("top/a", 500_000) + bytes(500_224 + 1024))), "x", fine)


@pytest.mark.parametrize("pax", [False, True])
@pytest.mark.parametrize("kind", [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.REGTYPE])
def test_a_negative_size_is_refused(tmp_path: Path, kind: bytes, pax: bool) -> None:
    """It made room for a bomb behind it: of a folder no content is read."""
    member = tarfile.TarInfo("top")
    member.type, member.linkname = kind, "x" if kind == tarfile.SYMTYPE else ""
    if pax:
        member.pax_headers = {"size": "-1152921504606846976"}
    else:
        member.size = -(1 << 60)
    content = member.tobuf(tarfile.PAX_FORMAT if pax else tarfile.GNU_FORMAT) + bytes(1024)
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="size that is not a number" if pax else "has -1152921504606846976 bytes"):
        unpack_archive(write(tmp_path / "x.tar", content), "x.tar", tmp_path / "out")


def test_archives_of_very_many_empty_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """400,000 folders are 30 kB of gzip."""
    monkeypatch.setattr("envbuild.core.bombs.SUSPECT", 1 << 20)
    folder = tarfile.TarInfo("top/d")
    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
    content = pack(folder.tobuf(tarfile.GNU_FORMAT) * 20_000 + bytes(1024))
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="unpack to more than"):
        unpack_archive(write(tmp_path / "x", content), "x", tmp_path / "out")
    for name in (b"control.tar.gz", b"data.tar.gz"):
        ar = b"!<arch>\n" + b"%-16s%-12d%-6d%-6d%-8o%-10d`\n" % (name, 0, 0, 0, 0o644, len(content)) + content
        (tmp_path / "root").mkdir(exist_ok=True)
        read = (
            deb.read_control if name.startswith(b"c") else lambda path: deb.unpack_packages([path], tmp_path / "root")
        )
        with pytest.raises(InputError, match=r"has more than 64 MiB|unpack to more than"):
            read(write(tmp_path / "x.deb", ar))


def test_a_package_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    content = pack(member("large", 2 << 30))
    ar = b"!<arch>\n" + b"%-16s%-12d%-6d%-6d%-8o%-10d`\n" % (b"data.tar.gz", 0, 0, 0, 0o644, len(content)) + content
    with pytest.raises(InputError, match="unpack to more than"):
        deb.unpack_packages([write(tmp_path / "x.deb", ar)], tmp_path / "root")
    assert not list((tmp_path / "root").iterdir())


@pytest.mark.parametrize(
    "content",
    [
        b"1" * (1 << 19),
        record("comment", "1" * (1 << 19)),
        record("comment", "0")[:-1],
        record("path", "other") + b"9 path=",
        b"99 path=short\n",
        b"3 =\n",
        b"0 path=x\n",
        b"path=x\n",
    ],
)
@pytest.mark.parametrize("kind", [b"x", b"g", b"X"])
def test_an_extended_header_of_another_form_is_refused_in_time(content: bytes, kind: bytes, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", extended(kind, content) + member("file") + bytes(1024))
    with ends_within(10), pytest.raises(tarfile.ReadError, match=r"an extended header (has|sets) |header of Solaris"):
        BoundedTarFile.open(path)


def test_headers_below_the_limits_are_read() -> None:
    content = extended(b"g", record("comment", "c")) + extended(b"x", record("path", "a" * 5000)) + member("short")
    with BoundedTarFile.open(fileobj=io.BytesIO(content * 50 + bytes(1024))) as tar:
        assert tar.getnames() == ["a" * 5000] * 50
