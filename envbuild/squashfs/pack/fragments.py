"""Tails of a pack: the last bytes of files (size modulo block), and whole small files, put together in fragment blocks.

Equal tails of a layer share one place. A checksum finds candidates and the bytes decide: a strong hash of every tail
would cost as much as a fifth of their compression.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable

from envbuild.squashfs.pack.append_file import Buffer
from envbuild.squashfs.pack.blocks import BlockWriter
from envbuild.squashfs.pack.index import PackIndex

CACHED_BLOCKS = 8  # unpacked fragment blocks that are cached for comparisons


class FragmentWriter:
    """A writer that fills fragment blocks in the order of the layer and passes the full ones to `blocks`."""

    def __init__(self, index: PackIndex, blocks: BlockWriter) -> None:
        self.index, self.blocks = index, blocks
        self.buffer = memoryview(bytearray(index.block))  # the open fragment block
        self.size = 0  # of what it holds
        self.number = -1  # of the open one
        self.places: dict[int, int] = {}  # checksum << 32 | length → fragment << 32 | offset
        self.digests: dict[int, bytes] = {}  # of places that were compared once
        self.unpacked: OrderedDict[int, Buffer] = OrderedDict()

    def add(self, row: int, content: Buffer, key: int) -> None:
        """Give the file `row` its tail: all of `content`, which is shorter than a block and not empty. `key`: its
        checksum << 32 | its length."""
        length = len(content)
        place = self.find(key, content)
        if place is None:
            if self.size + length > self.index.block:
                self.flush()
            if not self.size:
                self.number = self.blocks.new_fragment()
            place = self.number << 32 | self.size
            self.buffer[self.size : self.size + length] = content
            self.size += length
        self._place(row, key, place)

    def add_piece(self, content: bytes, tails: Iterable[tuple[int, int, int]], members: int) -> None:
        """Add a whole fragment block. `tails`: (row, offset in it, key) of what it has of files; `members`: as the
        column of the index."""
        number = self.blocks.new_fragment()
        self.index.columns["fragment_members"][number] = members
        for row, offset, key in tails:
            self._place(row, key, number << 32 | offset)
        self.blocks.add_fragment(number, content)

    def find(self, key: int, content: Buffer) -> int | None:
        """Return the place of an equal tail."""
        place = self.places.get(key)
        return place if place is not None and self._is(place, content) else None

    def flush(self) -> None:
        """End the open fragment block."""
        if self.size:
            self.blocks.add_fragment(self.number, bytes(self.buffer[: self.size]))
            self.number, self.size = -1, 0

    def _place(self, row: int, key: int, place: int) -> None:
        self.places.setdefault(key, place)  # of two different tails with one checksum the first keeps the key
        columns = self.index.columns
        columns["fragments"][row], columns["offsets"][row] = place >> 32, place & 0xFFFFFFFF
        columns["tails"][row] = key

    def _is(self, place: int, content: Buffer) -> bool:
        """Return whether the tail at `place` is `content`; the digest of a tail that was compared once is cached."""
        digest = self.digests.get(place)
        if digest is not None:
            return hashlib.blake2b(content, digest_size=16).digest() == digest
        number, offset = place >> 32, place & 0xFFFFFFFF
        block = self._block(number)
        if bytes(block[offset : offset + len(content)]) != bytes(content):
            return False
        self.digests[place] = hashlib.blake2b(content, digest_size=16).digest()
        return True

    def _block(self, number: int) -> Buffer:
        if number == self.number:
            return self.buffer
        block = self.unpacked.get(number)
        if block is None:
            block = self.unpacked[number] = self.blocks.fragment(number)
            if len(self.unpacked) > CACHED_BLOCKS:
                self.unpacked.popitem(last=False)
        else:
            self.unpacked.move_to_end(number)
        return block
