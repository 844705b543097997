"""Extended attributes of an image: equal sets are stored once."""

from __future__ import annotations

import struct

from envbuild.squashfs import format as sq
from envbuild.squashfs.codec import Compress
from envbuild.squashfs.write.merge import Node

PREFIXES = {b"user.": 0, b"trusted.": 1, b"security.": 2}

Pairs = tuple[tuple[bytes, bytes], ...]


class XattrTable:
    """Sets of attributes in the order of their first use: `stream` holds the pairs, `entries` the look-up table,
    `dropped` the names that squashfs has no prefix for.
    """

    def __init__(self, compress: Compress) -> None:
        self.stream = sq.MetadataWriter(compress)
        self.entries = bytearray()
        self.numbers: dict[Pairs, int] = {}
        self.dropped: set[bytes] = set()

    def number(self, node: Node) -> int:
        """Number of the node's set; NO_XATTR when it has none."""
        if node.pack is None:
            return sq.NO_XATTR
        index = node.pack.index
        number = index.columns["xattrs"][node.row]
        if not number:
            return sq.NO_XATTR
        pairs = index.xattr_sets[number]
        known = tuple((name, value) for name, value in pairs if name[: name.find(b".") + 1] in PREFIXES)
        self.dropped.update(name for name, _ in set(pairs) - set(known))
        if not known:
            return sq.NO_XATTR
        place = self.numbers.get(known)
        if place is None:
            place = self.numbers[known] = len(self.numbers)
            self._write(known)
        return place

    def _write(self, pairs: Pairs) -> None:
        piece, offset = self.stream.position
        size = 0
        for name, value in pairs:
            dot = name.index(b".") + 1
            short = name[dot:]
            data = struct.pack("<HH", PREFIXES[name[:dot]], len(short)) + short + struct.pack("<I", len(value)) + value
            self.stream.write(data)
            size += len(name) + 1 + len(value)  # as mksquashfs: what listing and reading them takes
        self.entries += struct.pack("<QII", piece << 16 | offset, len(pairs), size)
