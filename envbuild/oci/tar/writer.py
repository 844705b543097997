"""The canonical tar of a layer: ustar headers, pax records only where ustar cannot say it.

Formats: POSIX.1-2017, pax(1), "ustar Interchange Format" and "pax Interchange Format"; extended attributes as
``SCHILY.xattr.NAME`` (what GNU tar, Go's archive/tar and the OCI image spec use). No user names, no padding to 10,240
bytes: every byte follows from the members."""

from __future__ import annotations

import hashlib
from typing import IO

from envbuild.oci.tar.member import Kind, Member

BLOCK = 512
TYPES = {
    Kind.FILE: b"0",
    Kind.HARDLINK: b"1",
    Kind.SYMLINK: b"2",
    Kind.CHAR: b"3",
    Kind.BLOCK: b"4",
    Kind.DIR: b"5",
    Kind.FIFO: b"6",
}
ZEROS = bytes(1 << 20)
MAX_ID = 0o7777777
MAX_SIZE = 0o77777777777


class TarSink:
    """A `Sink` that writes the canonical tar: `size` (bytes), `sha256` (hex, after `close`), `files` (members).

    `file`: where the bytes go (any object with ``write``), or None when only the digest is wanted.
    """

    def __init__(self, file: IO[bytes] | None = None) -> None:
        self.file = file
        self.hash = hashlib.sha256()
        self.size = 0
        self.files = 0
        self.sha256 = ""
        self._left = 0
        self._pad = 0

    @property
    def diff_id(self) -> str:
        return f"sha256:{self.sha256}"

    def begin(self, member: Member) -> None:
        self._write(header(member))
        self.files += 1
        self._left = member.size
        self._pad = -member.size % BLOCK

    def data(self, chunk: bytes) -> None:
        self._left -= len(chunk)
        self._write(chunk)

    def zeros(self, count: int) -> None:
        """A run of zero bytes; the canonical tar has no holes, so they are written, a piece at a time."""
        self._left -= count
        while count > 0:
            piece = ZEROS[:count]
            self._write(piece)
            count -= len(piece)

    def end(self) -> None:
        """Raises ValueError when a member got another number of bytes than its size says."""
        if self._left:
            raise ValueError(f"a member's data differs from its size by {-self._left} bytes")
        if self._pad:
            self._write(bytes(self._pad))

    def close(self) -> None:
        self._write(bytes(2 * BLOCK))
        self.sha256 = self.hash.hexdigest()

    def _write(self, chunk: bytes) -> None:
        self.hash.update(chunk)
        self.size += len(chunk)
        if self.file is not None:
            self.file.write(chunk)


def header(member: Member) -> bytes:
    """The header of one member: a pax header when it needs one, and the ustar header."""
    path = (member.path or b".") + (b"/" if member.kind is Kind.DIR else b"")
    records: dict[bytes, bytes] = {b"SCHILY.xattr." + name: value for name, value in member.xattrs.items()}
    name, prefix = split(path)
    if not name:
        records[b"path"] = path
        name = path[:100]
    link = member.link
    if len(link) > 100:
        records[b"linkpath"] = link
        link = link[:100]
    numbers = {}
    for key, value, most in (
        (b"uid", member.uid, MAX_ID),
        (b"gid", member.gid, MAX_ID),
        (b"size", member.size, MAX_SIZE),
        (b"mtime", member.mtime, MAX_SIZE),
    ):
        fits = 0 <= value <= most
        numbers[key] = value if fits else 0
        if not fits:
            records[key] = b"%d" % value
    if not all(utf8(records.get(key, b"")) for key in (b"path", b"linkpath")):
        records[b"hdrcharset"] = b"BINARY"  # the bytes are the name, in no character set
    major, minor = member.device
    block = b"".join(
        (
            name.ljust(100, b"\0"),
            b"%07o\0" % member.mode,
            b"%07o\0" % numbers[b"uid"],
            b"%07o\0" % numbers[b"gid"],
            b"%011o\0" % numbers[b"size"],
            b"%011o\0" % numbers[b"mtime"],
            b" " * 8,
            TYPES[member.kind],
            link.ljust(100, b"\0"),
            b"ustar\x0000",
            bytes(64),
            b"%07o\0%07o\0" % (major, minor),
            prefix.ljust(155, b"\0"),
            bytes(12),
        )
    )
    return pax(records) + checked(block)


def pax(records: dict[bytes, bytes]) -> bytes:
    """The extended header that holds `records`, or nothing. hdrcharset stands first: it says how to read the others."""
    if not records:
        return b""
    ordered = sorted(records.items(), key=lambda item: (item[0] != b"hdrcharset", item[0]))
    body = b"".join(record(key, value) for key, value in ordered)
    block = b"".join(
        (
            b"pax".ljust(100, b"\0"),
            b"%07o\0%07o\0%07o\0" % (0o644, 0, 0),
            b"%011o\0%011o\0" % (len(body), 0),
            b" " * 8,
            b"x",
            bytes(100),
            b"ustar\x0000",
            bytes(64),
            b"%07o\0%07o\0" % (0, 0),
            bytes(167),
        )
    )
    return checked(block) + body + bytes(-len(body) % BLOCK)


def record(key: bytes, value: bytes) -> bytes:
    """``LENGTH KEY=VALUE\\n`` whose length counts itself."""
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %b=%b\n" % (length, key, value)


def split(path: bytes) -> tuple[bytes, bytes]:
    """(name, prefix) as ustar holds them; an empty name when it cannot."""
    if len(path) <= 100:
        return path, b""
    at = path.find(b"/", max(0, len(path) - 101), len(path) - 1)
    if at < 1 or at > 155:
        return b"", b""
    return path[at + 1 :], path[:at]


def checked(block: bytes) -> bytes:
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
