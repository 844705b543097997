"""The members of a pack with their data: the layer that it was made of."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envbuild.core.errors import EnvbuildError
from envbuild.oci.tar.member import Member, Sink
from envbuild.squashfs.pack.check_member import check_member
from envbuild.squashfs.pack.file import Pack, damaged_pack
from envbuild.squashfs.pack.index import FILE, KINDS, LENGTH, RAW

CACHED_BLOCKS = 8  # unpacked fragment blocks that are cached: neighbours share them


class StoredBlock(NamedTuple):
    """A whole block of a file: its content (empty: `size` zeros), and what the pack has of it from position `at` on;
    `is_raw`: not compressed."""

    size: int
    content: bytes
    at: int
    stored: bytes
    is_raw: bool


def send_members(pack: Pack, sinks: Sequence[Sink], most: int | None = None) -> None:
    """Pass every member of a pack and its data to all `sinks`, and close them.

    most: bytes of fragment blocks that may be unpacked; each of them may be unpacked again and again. Raises
    EnvbuildError for data that is damaged; it does not compare checksums: the digest of the layer shows more.
    """
    reader = PackReader(pack, most)
    for row, member in reader.members():
        for sink in sinks:
            sink.begin(member)
        for block in reader.blocks(row):
            for sink in sinks:
                if block.stored:
                    sink.data(block.content)
                else:
                    sink.zeros(block.size)
        if tail := reader.tail(row):
            for sink in sinks:
                sink.data(tail)
        for sink in sinks:
            sink.end()
    for sink in sinks:
        sink.close()


class PackReader:
    """The members of a pack by their row. `most`: as of `send_members`. Its methods raise EnvbuildError for data that
    is damaged."""

    def __init__(self, pack: Pack, most: int | None = None) -> None:
        if pack.file is None:
            raise ValueError("a pack in an image that is being made")
        self.pack, self.file, self.left = pack, pack.file.fd, most
        self.fragments: OrderedDict[int, bytes] = OrderedDict()

    def members(self) -> Iterator[tuple[int, Member]]:
        """Yield each member with its row."""
        index, columns = self.pack.index, self.pack.index.columns
        for row in range(len(index)):
            member = Member(
                index.paths[row],
                KINDS[index.kinds[row]],
                columns["modes"][row],
                columns["uids"][row],
                columns["gids"][row],
                columns["mtimes"][row],
                columns["sizes"][row],
                index.links[row],
                (columns["majors"][row], columns["minors"][row]),
                dict(index.xattr_sets[columns["xattrs"][row]]),
            )
            check_member(member)  # another user may have written the pack
            yield row, member

    def blocks(self, row: int) -> Iterator[StoredBlock]:
        """Yield the whole blocks of a file; none of another member."""
        index, columns = self.pack.index, self.pack.index.columns
        if index.kinds[row] != FILE:
            return
        at, left = columns["starts"][row], columns["sizes"][row]
        for word in index.words(row):
            size = min(index.block, left)
            left -= size
            yield self.block(at, word, size)
            at += word & ~RAW

    def tail(self, row: int) -> bytes:
        """Return the bytes of a file behind its blocks, which are in a fragment block."""
        columns = self.pack.index.columns
        tail = columns["tails"][row] & LENGTH if self.pack.index.kinds[row] == FILE else 0
        if not tail:
            return b""
        offset = columns["offsets"][row]
        return self.fragment(columns["fragments"][row])[offset : offset + tail]

    def fragment(self, number: int) -> bytes:
        """Return the content of a fragment block."""
        content = self.fragments.pop(number, None)
        if content is None:
            size = self.pack.index.columns["fragment_sizes"][number]
            if self.left is not None:
                self.left -= size
                if self.left < 0:
                    raise EnvbuildError("its files are in an order that unpacks too much")
            content = self.fragment_block(number).content
            if len(self.fragments) >= CACHED_BLOCKS:
                self.fragments.popitem(last=False)
        self.fragments[number] = content
        return content

    def fragment_block(self, number: int) -> StoredBlock:
        """Return a fragment block as it is stored."""
        starts, words, sizes = (self.pack.index.columns[f"fragment_{name}"] for name in ("starts", "words", "sizes"))
        return self.block(starts[number], words[number], sizes[number])

    def block(self, at: int, word: int, size: int) -> StoredBlock:
        """Return the block of `size` bytes that begins at `at`; without bytes in the pack it is zeros."""
        stored_size, is_raw = word & ~RAW, bool(word & RAW)
        if stored_size > size:  # no block is stored larger; a small pack could have a million that are read whole
            raise damaged_pack(self.pack)
        if not word:
            return StoredBlock(size, b"", at, b"", is_raw=False)
        stored = os.pread(self.file, stored_size, self.pack.base + at)
        content = stored if is_raw else self.pack.index.codec.decompress(stored, size)
        if len(content) != size or not stored:
            raise damaged_pack(self.pack)
        return StoredBlock(size, content, at, stored, is_raw)
