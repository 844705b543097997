"""The extended attributes of a squashfs file (sources: `envbuild.squashfs.read.tree`)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from envbuild.squashfs.read.decompress import CorruptDataError
from envbuild.squashfs.read.metadata_stream import MetadataStream

PREFIXES = (b"user.", b"trusted.", b"security.")
ELSEWHERE = 0x100  # of an attribute's type: its value is stored once, at another place
NAME, VALUE, ATTRIBUTES = 255, 1 << 16, 1 << 22  # bytes of an attribute (limits of Linux), and of all of one inode


@dataclass(slots=True)
class XattrTable:
    """The `count` sets of attributes of a file: the stream of the sets, and that of names and values."""

    sets: MetadataStream
    pairs: MetadataStream
    count: int

    def read(self, number: int) -> dict[bytes, bytes]:
        """Return a set: name with its prefix → value. Raises CorruptDataError, struct.error or IndexError."""
        if number >= self.count:
            raise CorruptDataError("there is no such set")
        pairs = self.pairs
        place, count, _ = struct.unpack("<QII", self.sets.read(16 * number, 16))
        at = pairs.position(place >> 16, place & 0xFFFF)
        found: dict[bytes, bytes] = {}
        room = ATTRIBUTES
        for _ in range(count):
            prefix, length = struct.unpack("<HH", pairs.read(at, 4))
            if length > NAME:
                raise CorruptDataError(f"a name of {length} bytes")
            name = PREFIXES[prefix & ~ELSEWHERE] + pairs.read(at + 4, length)
            if name in found:
                raise CorruptDataError("one name is listed twice")
            found[name], at = _read_value(pairs, at + 4 + length)
            if prefix & ELSEWHERE:
                (place,) = struct.unpack("<Q", found[name])
                found[name], _ = _read_value(pairs, pairs.position(place >> 16, place & 0xFFFF))
            room -= len(name) + len(found[name])
            if room < 0:
                raise CorruptDataError("a set is too large")
        return found


def _read_value(pairs: MetadataStream, at: int) -> tuple[bytes, int]:
    """Return a value and where the next record is."""
    (length,) = struct.unpack("<I", pairs.read(at, 4))
    if length > VALUE:
        raise CorruptDataError(f"a value of {length} bytes")
    return pairs.read(at + 4, length), at + 4 + length
