"""Tails of a pack: the last bytes of files (size modulo block), and whole small files, put together in fragment blocks.

Equal tails of a layer share one place. A checksum finds candidates and the bytes decide: a strong hash of every tail
would cost as much as a fifth of their compression.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from envbuild.squashfs.codec import crc32
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
        self.number = 0  # of the open one
        self.places: dict[int, int] = {}  # checksum << 32 | length → fragment << 32 | offset
        self.digests: dict[int, bytes] = {}  # of places that were compared once
        self.unpacked: OrderedDict[int, Buffer] = OrderedDict()

    def add(self, row: int, content: Buffer) -> None:
        """Give the file `row` its tail: all of `content`, which is shorter than a block and not empty."""
        length = len(content)
        key = crc32(content) << 32 | length
        place = self.places.get(key)
        if place is None or not self._is(place, content):
            if self.size + length > self.index.block:
                self.flush()
            new = self.number << 32 | self.size
            if place is None:  # of two different tails with one checksum the first keeps the key
                self.places[key] = new
            place = new
            self.buffer[self.size : self.size + length] = content
            self.size += length
        columns = self.index.columns
        columns["fragments"][row], columns["offsets"][row] = place >> 32, place & 0xFFFFFFFF
        columns["tails"][row] = key

    def flush(self) -> None:
        """End the open fragment block."""
        if self.size:
            self.blocks.add_fragment(bytes(self.buffer[: self.size]))
            self.number += 1
            self.size = 0

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
