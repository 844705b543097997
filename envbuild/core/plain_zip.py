"""Python's zip reader for third-party archives: members that are stored or deflated alone.

`zipfile` unpacks members of other methods whole, of any size that they state: 1.6 kB of bzip2 took 4 GB of memory.
Wheels have no others."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from typing import Any

LOCAL = struct.Struct("<4s5H3L2H")  # APPNOTE.TXT, 4.3.7
LATER, LARGE = 1 << 3, 0xFFFFFFFF  # flag: sizes follow the content; a size that is in an extra field
ZIP64, UTF8_NAME = 1, 0x7075  # numbers of extra fields: sizes, and Info-ZIP's other name (4.6.9)


class PlainZipFile(zipfile.ZipFile):
    """A zip archive of members that are stored or deflated. Reading raises what `zipfile` raises."""

    def open(self, name: str | zipfile.ZipInfo, *arguments: Any, **options: Any) -> Any:
        """Return a member as a stream, with no more bytes than its size. Raises BadZipFile for other methods."""
        found = name if isinstance(name, zipfile.ZipInfo) else self.getinfo(name)
        if found.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or found.flag_bits & 1:
            raise zipfile.BadZipFile(f"{found.filename!r} is compressed or encrypted in a way that no wheel is")
        self.compare_headers(found)
        return super().open(found, *arguments, **options)

    def compare_headers(self, found: zipfile.ZipInfo) -> None:
        """Raise BadZipFile for a member that has other sizes, another checksum or method in front of its content than
        in the directory: `unzip` reads the one, `zipfile` the other."""
        file: Any = self.fp
        before = file.tell()
        try:
            file.seek(found.header_offset)
            head = file.read(LOCAL.size)
            if len(head) < LOCAL.size:
                raise zipfile.BadZipFile(f"{found.filename!r} is truncated")
            _, _, flags, method, _, _, crc, packed, size, name, extra = LOCAL.unpack(head)
            file.seek(name, 1)
            fields = file.read(extra)
        finally:
            file.seek(before)
        for number, content in (*extra_fields(fields), *extra_fields(found.extra)):
            if number == UTF8_NAME and content[5:] != found.filename.encode(errors="surrogateescape"):
                raise zipfile.BadZipFile(f"{found.filename!r} has two names")
        for number, content in extra_fields(fields) if LARGE in (packed, size) else ():
            if number == ZIP64 and len(content) >= 16:
                size, packed = struct.unpack_from("<QQ", content)
                break
        same = (crc, packed, size) == (found.CRC, found.compress_size, found.file_size)
        if method != found.compress_type or (flags ^ found.flag_bits) & LATER or not (flags & LATER or same):
            raise zipfile.BadZipFile(f"{found.filename!r} has two headers that differ")


def extra_fields(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of the extra fields of a header (4.5.1)."""
    while len(content) >= 4:
        number, length = struct.unpack_from("<HH", content)
        yield number, content[4 : 4 + length]
        content = content[4 + length :]
