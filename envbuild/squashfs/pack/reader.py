"""The members of a pack with their data: the layer that it was made of."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence

from envbuild.core.errors import EnvbuildError
from envbuild.oci.tar.member import Member, Sink
from envbuild.squashfs.pack.check_member import check_member
from envbuild.squashfs.pack.file import Pack, damaged_pack
from envbuild.squashfs.pack.index import FILE, KINDS, LENGTH, RAW

CACHED_BLOCKS = 8  # unpacked fragment blocks that are cached: neighbours share them


def send_members(pack: Pack, sinks: Sequence[Sink], most: int | None = None) -> None:
    """Pass every member of a pack and its data to all `sinks`, and close them.

    most: bytes of fragment blocks that may be unpacked; each of them may be unpacked again and again. Raises
    EnvbuildError for data that is damaged; it does not compare checksums: the digest of the layer shows more.
    """
    index, columns = pack.index, pack.index.columns
    if pack.file is None:
        raise ValueError("a pack in an image that is being made")
    reader = _Reader(pack, pack.file.fd, most)
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
        for sink in sinks:
            sink.begin(member)
        if index.kinds[row] == FILE:
            reader.send(row, sinks)
        for sink in sinks:
            sink.end()
    for sink in sinks:
        sink.close()


class _Reader:
    def __init__(self, pack: Pack, file: int, most: int | None) -> None:
        self.pack, self.file, self.left = pack, file, most
        self.fragments: OrderedDict[int, bytes] = OrderedDict()

    def send(self, row: int, sinks: Sequence[Sink]) -> None:
        """Pass the data of a file to `sinks`."""
        index, columns = self.pack.index, self.pack.index.columns
        at, left = columns["starts"][row], columns["sizes"][row]
        for word in index.words(row):
            size = min(index.block, left)
            left -= size
            if not word:
                for sink in sinks:
                    sink.zeros(size)
                continue
            content = self.block(at, word, size)
            at += word & ~RAW
            for sink in sinks:
                sink.data(content)
        if tail := columns["tails"][row] & LENGTH:
            offset = columns["offsets"][row]
            content = self.fragment(columns["fragments"][row])[offset : offset + tail]
            for sink in sinks:
                sink.data(content)

    def fragment(self, number: int) -> bytes:
        """Return the content of a fragment block."""
        content = self.fragments.pop(number, None)
        if content is None:
            columns = self.pack.index.columns
            size = columns["fragment_sizes"][number]
            if self.left is not None:
                self.left -= size
                if self.left < 0:
                    raise EnvbuildError("its files are in an order that unpacks too much")
            content = self.block(columns["fragment_starts"][number], columns["fragment_words"][number], size)
            if len(self.fragments) >= CACHED_BLOCKS:
                self.fragments.popitem(last=False)
        self.fragments[number] = content
        return content

    def block(self, at: int, word: int, size: int) -> bytes:
        """Return the content, `size` bytes, of a block that begins at `at`. Raises EnvbuildError."""
        if word & ~RAW > size:  # no block is stored larger; a small pack could have a million that are read whole
            raise damaged_pack(self.pack)
        stored = os.pread(self.file, word & ~RAW, self.pack.base + at)
        content = stored if word & RAW else self.pack.index.codec.decompress(stored, size)
        if len(content) != size:
            raise damaged_pack(self.pack)
        return content
