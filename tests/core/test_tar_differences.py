"""Tar archives that programs read differently, and forms that all of them read."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from envbuild.build.engines.prepare_inputs import unpack_archive
from envbuild.core.bounded_tar import BoundedTarFile
from envbuild.core.errors import InputError
from envbuild.oci.sources.archive_index import convert_archive_errors
from tests.support.tar_headers import extended, hard_link, member, record, write

pytestmark = pytest.mark.unit


def with_size(size: bytes) -> bytes:
    """Return a header with this field for the size, and the right sum."""
    head = bytearray(member("file"))
    head[124:136] = size
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def with_prefix(magic: bytes) -> bytes:
    head = bytearray(member("file"))
    head[257:265], head[345:350] = magic, b"other"
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def padded(kind: bytes, content: bytes, more: bytes) -> bytes:
    """Return an extended header with something behind its content, in the same block."""
    head = tarfile.TarInfo("extended")
    head.type, head.size = kind, len(content)
    return head.tobuf(tarfile.GNU_FORMAT) + (content + more).ljust(512, b"\0")


def old_file(name: str, size: int) -> bytes:
    """Return the header of a file of Unix version 7, whose name makes it a folder or not."""
    found = tarfile.TarInfo(name)
    found.type, found.size = tarfile.AREGTYPE, size
    return found.tobuf(tarfile.GNU_FORMAT)


FIRST, END = member("first"), bytes(1024)
DIFFERENT = {
    "two extended headers": extended(b"x", record("path", "a")) + extended(b"x", record("comment", "b")) + member("c"),
    "a long name and records": extended(b"L", b"long\0") + extended(b"x", record("path", "a")) + member("c"),
    "two long names": extended(b"L", b"one\0") + extended(b"L", b"two\0") + member("c"),
    "empty long name": extended(b"L", bytes(20)) + member("c"),
    "records behind the header": padded(b"x", record("path", "a"), record("path", "b")) + member("c"),
    "global records behind the header": padded(b"g", record("comment", "a"), record("path", "b")) + member("c"),
    "long name behind its size": padded(b"L", b"long", b"er") + member("c"),
    "name of a sparse file": extended(b"x", record("GNU.sparse.name", "other")) + member("c"),
    "size of a sparse file": extended(b"x", record("GNU.sparse.realsize", "9")) + member("c"),
    "file that is named as a folder": member("c/") + member("d"),
    "old file that is named as a folder": old_file("c/", 512) + member("d") + member("e"),
    "folder with a size in records": extended(b"x", record("path", "c") + record("size", "512")) + old_file("c/", 0),
    "folder by its record": extended(b"x", record("path", "c/")) + old_file("c", 0),
    "hard link with a size": extended(b"x", record("size", "512")) + hard_link("c", "first"),
    "global between": extended(b"x", record("path", "a")) + extended(b"g", record("comment", "b")) + member("c"),
    "global name": extended(b"g", record("linkpath", "other")) + member("c"),
    "empty name": extended(b"x", record("path", "")) + member("c"),
    "size of words": extended(b"x", record("size", "0_0")) + member("c"),
    "size behind a null": with_size(b"\x0000000001000"),
    "size behind blanks": with_size(b"  \x000001000 "),
    "prefix of Unix version 7": with_prefix(bytes(8)),
    "prefix of GNU": with_prefix(b"ustar  \0"),
    "single block of zeros": bytes(512) + member("c"),
    "damaged header": b"x" * 512 + member("c"),
    "half a header": member("c")[:300],
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_programs_read_differently_is_refused(name: str, tmp_path: Path) -> None:
    """Who reviews an archive with another program than Python's would see other files than are used."""
    content = FIRST + DIFFERENT[name] + (b"" if name == "half a header" else END)
    path = write(tmp_path / "a.tar", content)
    with pytest.raises(InputError), BoundedTarFile.open(path) as read, convert_archive_errors(path):
        list(read)
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="cannot be unpacked"):
        unpack_archive(path, path.name, tmp_path / "out")


def test_a_long_name_whose_begin_ends_with_a_slash_is_read(tmp_path: Path) -> None:
    """The header has the first 100 bytes of the name, here those of a folder."""
    name = f"{'d/' * 50}file"
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        found = tarfile.TarInfo(name)
        content = found.tobuf(form) + member("next") + bytes(1024)
        with BoundedTarFile.open(write(tmp_path / "a.tar", content)) as read:
            assert read.getnames() == [name, "next"]


def test_forms_of_other_programs_are_read(tmp_path: Path) -> None:
    long = extended(b"K", b"target\0") + extended(b"L", b"long\0") + member("c")
    git = extended(b"g", record("comment", "a" * 40)) + extended(b"x", record("path", "d")) + member("e")
    sizes = b"".join(map(with_size, (b"       0    ", bytes(12), b"0000\0other00", b"\x80" + bytes(11))))
    with BoundedTarFile.open(write(tmp_path / "a.tar", FIRST + long + git + sizes + END)) as read:
        assert read.getnames() == ["first", "long", "d", *["file"] * 4]
    for end in (b"", bytes(512), bytes(5120)):
        with BoundedTarFile.open(write(tmp_path / "a.tar", FIRST + end)) as read:
            assert read.getnames() == ["first"]


def test_bytes_that_were_read_ahead_are_read_again() -> None:
    content = io.BytesIO()
    with tarfile.open(
        fileobj=content, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "of all"}
    ) as archive:
        for number in range(3):
            found = tarfile.TarInfo(f"{'ü' * 120}-{number}")
            found.size, found.pax_headers = 5, {"SCHILY.xattr.user.a": f"line\n{number}=9"}
            archive.addfile(found, io.BytesIO(f"text{number}".encode()))
    for mode in ("r:", "r|"):
        content.seek(0)
        with BoundedTarFile.open(fileobj=content, mode=mode) as read:
            for number, found in enumerate(read):
                assert found.name == f"{'ü' * 120}-{number}" and found.pax_headers["comment"] == "of all"
                assert found.pax_headers["SCHILY.xattr.user.a"] == f"line\n{number}=9"
                part = read.extractfile(found)
                assert part and part.read() == f"text{number}".encode()
            assert number == 2
