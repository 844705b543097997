"""Tars by hand and by GNU tar, and a sink that records what it receives."""

from __future__ import annotations

import contextlib
import hashlib
import io
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from envbuild.oci.sources.base import SourceLayer
from envbuild.oci.tar.member import Kind, Member
from envbuild.oci.tar.reader import read_tar
from envbuild.oci.tar.writer import TarSink

END = bytes(1024)
MEGA = 1 << 20
KEEP = 1 << 24  # recorded bytes of one file
STEPS = [1 << 30, 700, 512, 100, 1]  # bytes in which a stream comes
TYPES = {
    Kind.FILE: tarfile.REGTYPE,
    Kind.DIR: tarfile.DIRTYPE,
    Kind.SYMLINK: tarfile.SYMTYPE,
    Kind.HARDLINK: tarfile.LNKTYPE,
    Kind.FIFO: tarfile.FIFOTYPE,
    Kind.CHAR: tarfile.CHRTYPE,
    Kind.BLOCK: tarfile.BLKTYPE,
}


class Recorder:
    """A sink: `members` in their order, and the content of each (holes of more than `KEEP` bytes as their length)."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.contents: list[list[bytes | int]] = []
        self.open = self.closed = False

    def begin(self, member: Member) -> None:
        assert not self.open
        self.open = True
        self.members.append(member)
        self.contents.append([])

    def data(self, chunk: bytes) -> None:
        assert self.open and len(chunk)
        self.contents[-1].append(bytes(chunk))

    def zeros(self, count: int) -> None:
        assert self.open and count > 0
        self.contents[-1].append(count)

    def end(self) -> None:
        assert self.open
        self.open = False
        length = sum(part if isinstance(part, int) else len(part) for part in self.contents[-1])
        assert length == self.members[-1].size

    def close(self) -> None:
        self.closed = True

    def content(self, number: int) -> bytes:
        return b"".join(bytes(part) for part in self.contents[number])  # bytes of a number are so many zeros

    def named(self, path: bytes) -> tuple[Member, bytes]:
        """Return the last member of that path, and its content."""
        number = max(number for number, member in enumerate(self.members) if member.path == path)
        return self.members[number], self.content(number)


class Drops:
    """A stream that returns few bytes at a time: never more than `most`."""

    def __init__(self, content: bytes, most: int) -> None:
        self.file, self.most, self.asked = io.BytesIO(content), most, 0

    def read(self, size: int) -> bytes:
        self.asked = max(self.asked, size)
        return self.file.read(min(size, self.most))


def read(content: bytes, most: int = 1 << 30) -> Recorder:
    """Return what `read_tar` makes of a tar that comes in pieces of at most `most` bytes."""
    found, stream = Recorder(), Drops(content, most)
    assert read_tar(stream, found) == len(content)
    assert stream.asked <= 1 << 20 and not found.open
    return found


def only(content: bytes) -> Member:
    """Return the one member of a tar without its end."""
    (member,) = read(content + END).members
    return member


def header(
    name: bytes = b"file",
    kind: bytes = b"0",
    *,
    size: bytes = b"00000000000\0",
    mode: bytes = b"0000644\0",
    uid: bytes = b"0000000\0",
    mtime: bytes = b"00000000000\0",
    link: bytes = b"",
    magic: bytes = b"ustar\x0000",
    device: bytes = bytes(16),
    prefix: bytes = b"",
    tail: bytes = b"",
) -> bytes:
    """Return one header, every field as given. `tail`: the bytes of `prefix` and behind it."""
    block = b"".join(
        (
            name.ljust(100, b"\0"),
            mode,
            uid,
            b"0000000\0",
            size,
            mtime,
            b" " * 8,
            kind,
            link.ljust(100, b"\0"),
            magic,
            bytes(64),
            device,
            (tail or prefix).ljust(167, b"\0"),
        )
    )
    assert len(block) == 512
    return summed(block)


def summed(block: bytes) -> bytes:
    total = sum(block[:148] + block[156:512]) + 256
    return block[:148] + b"%06o\0 " % total + block[156:]


def octal(number: int) -> bytes:
    return b"%011o\0" % number


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


def file(name: bytes, content: bytes = b"", kind: bytes = b"0", magic: bytes = b"ustar\x0000") -> bytes:
    """Return a file with its content."""
    return header(name, kind, size=octal(len(content)), magic=magic) + padded(content)


def pax(*pairs: tuple[bytes, bytes], kind: bytes = b"x") -> bytes:
    """Return an extended header."""
    return file(b"PaxHeaders/x", b"".join(record(*pair) for pair in pairs), kind)


def record(key: bytes, value: bytes) -> bytes:
    length = len(key) + len(value) + 3
    while len(b"%d %b=%b\n" % (length, key, value)) != length:
        length += 1
    return b"%d %b=%b\n" % (length, key, value)


def small() -> bytes:
    """Return a tar with an entry of nearly every form."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, link in (
            ("d", tarfile.DIRTYPE, ""),
            ("d/" + "long" * 40, tarfile.REGTYPE, ""),
            ("d/f", tarfile.REGTYPE, ""),
            ("d/l", tarfile.SYMTYPE, "../f"),
            ("d/h", tarfile.LNKTYPE, "d/f"),
            ("d/p", tarfile.FIFOTYPE, ""),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mtime = kind, link, 1700000000.5
            info.pax_headers = {"SCHILY.xattr.user.a": "b"}
            content = b"content of it\n" * 50 if kind == tarfile.REGTYPE else b""
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    gnu = io.BytesIO()
    with tarfile.open(fileobj=gnu, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for number in range(2):
            info = tarfile.TarInfo(f"{number}" * 150)
            info.type, info.linkname, info.uid = tarfile.SYMTYPE, "t" * 150, 1 << 25
            tar.addfile(info)
    text = b"3\n1024\n512\n4096\n512\n8192\n0\n"
    sparse = (
        pax(
            (b"GNU.sparse.major", b"1"),
            (b"GNU.sparse.minor", b"0"),
            (b"GNU.sparse.name", b"s"),
            (b"GNU.sparse.realsize", b"8192"),
        )
        + header(b"GNUSparseFile.0/s", size=octal(1536))
        + padded(text)
        + b"x" * 1024
    )
    return cut(buffer.getvalue()) + cut(gnu.getvalue()) + sparse + old_sparse() + END


def old_sparse(*, more: bytes = b"\0", size: bytes = b"00000002000\0", real: bytes = b"00000020000\0") -> bytes:
    """Return a sparse file in GNU tar's old form: 512 bytes at 1024 and 512 at 4096, of 8192."""
    parts = b"".join(b"%011o\0" % number for number in (1024, 512, 4096, 512, 8192, 0)).ljust(96, b"\0")
    tail = bytes(41) + parts + more + real
    return header(b"old", b"S", size=size, magic=b"ustar  \0", tail=tail) + b"y" * 1024


def cut(tar: bytes) -> bytes:
    """Return a tar without its end."""
    at = len(tar)
    while not tar[at - 512 : at].strip(b"\0"):
        at -= 512
    return tar[:at]


def source(blob: bytes, tar: bytes, *, digest: str = "", diff_id: str = "", size: int = -1) -> SourceLayer:
    """Return a layer with right digests and sizes, but for those that are passed."""

    @contextlib.contextmanager
    def opened() -> Iterator[IO[bytes]]:
        yield io.BytesIO(blob)

    return SourceLayer(
        diff_id or "sha256:" + hashlib.sha256(tar).hexdigest(),
        digest or "sha256:" + hashlib.sha256(blob).hexdigest(),
        len(blob) if size < 0 else size,
        "layer 1 of 1",
        opened,
    )


def gnu(folder: Path, *options: str) -> bytes:
    """Return what GNU tar makes of a folder."""
    names = sorted(path.name for path in folder.iterdir())
    command = ["tar", "-C", str(folder), "-cf", "-", "--sort=name", *options, "--"]
    return subprocess.run([*command, *names], check=True, capture_output=True).stdout


def written_tar(layer: Iterable[tuple[Member, bytes]]) -> bytes:
    """Return the canonical tar of a layer."""
    out = io.BytesIO()
    sink = TarSink(out)
    for member, content in layer:
        sink.begin(member)
        sink.data(content)
        sink.end()
    sink.close()
    return out.getvalue()
