"""Limits of extended headers: every reader of foreign tar archives that uses Python's."""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.build.engines import deb
from envbuild.build.engines.prepare_inputs import unpack_archive
from envbuild.core.bounded_tar import MAX_CHAIN, MAX_EXTENDED, BoundedTarFile
from envbuild.core.errors import InputError
from envbuild.oci.sources.archive import index_archive
from envbuild.oci.sources.archive_stream import index_compressed_archive

pytestmark = pytest.mark.unit


def extended(kind: bytes, content: bytes) -> bytes:
    head = tarfile.TarInfo("extended")
    head.type, head.size = kind, len(content)
    return head.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def member(name: str) -> bytes:
    found = tarfile.TarInfo(name)
    return found.tobuf(tarfile.GNU_FORMAT)


def record(key: str, value: str) -> bytes:
    length = len(key) + len(value) + 3
    while len(f"{length} {key}={value}\n") != length:
        length += 1
    return f"{length} {key}={value}\n".encode()


def archives() -> list[bytes]:
    long = extended(b"x", record("comment", "a" * MAX_EXTENDED))
    name = extended(b"L", b"n" * (MAX_EXTENDED + 1))
    every = extended(b"g", b"".join(record(f"key{number}", "v") for number in range(200)))
    sparse = record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0")
    chain = extended(b"x", record("comment", "a")) * (MAX_CHAIN + 1)
    return [head + member("file") + bytes(1024) for head in (long, name, every + member("first"), chain)] + [
        extended(b"x", sparse) + member("file") + bytes(1024)
    ]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def pack(content: bytes) -> bytes:
    return zlib.compress(content, wbits=31)


def read_deb(path: Path) -> None:
    content = path.read_bytes()
    ar = b"!<arch>\n" + b"%-16s%-12d%-6d%-6d%-8o%-10d`\n" % (b"control.tar", 0, 0, 0, 0o644, len(content)) + content
    deb.read_control(write(path.with_suffix(".deb"), ar))


@pytest.mark.parametrize("content", archives(), ids=["pax", "name", "global", "chain", "sparse"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_an_archive_of_an_image_has_limits(tmp_path: Path, content: bytes, packed: bool) -> None:
    path = write(tmp_path / "x", pack(content) if packed else content)
    with pytest.raises(InputError):
        (index_compressed_archive if packed else index_archive)(path)


@pytest.mark.parametrize("content", archives()[:4], ids=["pax", "name", "global", "chain"])
@pytest.mark.parametrize("reader", [read_deb, lambda path: unpack_archive(path, "x", path.parent / "out")])
def test_other_archives_have_limits(tmp_path: Path, content: bytes, reader: Callable[[Path], None]) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError):
        reader(write(tmp_path / "x.tar", content))


def test_headers_below_the_limits_are_read() -> None:
    content = extended(b"g", record("comment", "c")) + extended(b"x", record("path", "a" * 5000)) + member("short")
    with BoundedTarFile.open(fileobj=io.BytesIO(content * 50 + bytes(1024))) as tar:
        assert tar.getnames() == ["a" * 5000] * 50
