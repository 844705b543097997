"""Canonical tar of a layer: ustar headers, pax records only where ustar cannot represent a value.

Formats: POSIX.1-2017, pax(1), "ustar Interchange Format" and "pax Interchange Format"; extended attributes as
``SCHILY.xattr.NAME`` (what GNU tar, Go's archive/tar and the OCI image spec use). No user names, no padding to 10,240
bytes: every byte follows from the members.
"""

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
USTAR = b"ustar\x0000"  # magic and version
NUMBERS = (b"uid", b"gid", b"size", b"mtime")
Numbers = tuple[int, int, int, int]  # in this order


class TarSink:
    """`Sink` that writes the canonical tar: `size` (bytes), `sha256` (hex, after `close`), `files` (members).

    `file`: where the bytes go (any object with ``write``), or None if only the digest is required.
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
        self._write(encode_header(member))
        self.files += 1
        self._left = member.size
        self._pad = -member.size % BLOCK

    def data(self, chunk: bytes) -> None:
        self._left -= len(chunk)
        self._write(chunk)

    def zeros(self, count: int) -> None:
        """Write a run of zero bytes, a piece at a time; the canonical tar has no holes."""
        self._left -= count
        while count > 0:
            piece = ZEROS[:count]
            self._write(piece)
            count -= len(piece)

    def end(self) -> None:
        """Complete the member. Raises ValueError if it got another number of bytes than its size."""
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


def encode_header(member: Member) -> bytes:
    """Return the header of one member: a pax header if it needs one, and the ustar header."""
    path = (member.path or b".") + (b"/" if member.kind is Kind.DIR else b"")
    records = {b"SCHILY.xattr." + name: value for name, value in member.xattrs.items()}
    name, prefix = split_name(path)
    if not name:
        records[b"path"] = path
        name = path[:100]
    link = member.link
    if len(link) > 100:
        records[b"linkpath"] = link
        link = link[:100]
    uid, gid, size, mtime = numbers = member.uid, member.gid, member.size, member.mtime
    if not (0 <= uid <= MAX_ID and 0 <= gid <= MAX_ID and 0 <= size <= MAX_SIZE and 0 <= mtime <= MAX_SIZE):
        numbers = _move_numbers(numbers, records)
    if records and not all(is_utf8(records.get(key, b"")) for key in (b"path", b"linkpath")):
        records[b"hdrcharset"] = b"BINARY"  # the bytes are the name, in no character set
    return encode_pax(records) + encode_block(
        name, member.mode, numbers, TYPES[member.kind], link, member.device, prefix
    )


def _move_numbers(numbers: Numbers, records: dict[bytes, bytes]) -> Numbers:
    """Return the numbers with 0 for those that ustar does not hold, which are entered into `records`."""
    fitting = []
    for key, value, most in zip(NUMBERS, numbers, (MAX_ID, MAX_ID, MAX_SIZE, MAX_SIZE), strict=True):
        fits = 0 <= value <= most
        fitting.append(value if fits else 0)
        if not fits:
            records[key] = b"%d" % value
    return fitting[0], fitting[1], fitting[2], fitting[3]


def encode_block(
    name: bytes,
    mode: int,
    numbers: Numbers,
    kind: bytes,
    link: bytes = b"",
    device: tuple[int, int] = (0, 0),
    prefix: bytes = b"",
) -> bytes:
    """Return one ustar header. Its checksum counts the blanks in its own field; zeros are not added up one by one."""
    first = b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, *numbers)
    last = b"%07o\0%07o\0" % device
    checksum = sum(name) + sum(first) + 8 * ord(" ") + sum(kind) + sum(link) + sum(USTAR) + sum(last) + sum(prefix)
    return b"".join(
        (
            name.ljust(100, b"\0"),
            first,
            b"%06o\0 " % checksum,
            kind,
            link.ljust(100, b"\0"),
            USTAR,
            bytes(64),
            last,
            prefix.ljust(155, b"\0"),
            bytes(12),
        )
    )


def encode_pax(records: dict[bytes, bytes]) -> bytes:
    """Return the extended header that contains `records`, or nothing. hdrcharset comes first: it defines how to
    read the others."""
    if not records:
        return b""
    ordered = sorted(records.items(), key=lambda item: (item[0] != b"hdrcharset", item[0]))
    body = b"".join(encode_record(key, value) for key, value in ordered)
    return encode_block(b"pax", 0o644, (0, 0, len(body), 0), b"x") + body + bytes(-len(body) % BLOCK)


def encode_record(key: bytes, value: bytes) -> bytes:
    """Return ``LENGTH KEY=VALUE\\n``, whose length counts itself."""
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %b=%b\n" % (length, key, value)


def split_name(path: bytes) -> tuple[bytes, bytes]:
    """Return (name, prefix) as ustar has them; an empty name if it cannot."""
    if len(path) <= 100:
        return path, b""
    at = path.find(b"/", max(0, len(path) - 101), len(path) - 1)
    if at < 1 or at > 155:
        return b"", b""
    return path[at + 1 :], path[:at]


def is_utf8(value: bytes) -> bool:
    """Return whether bytes are UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
