"""Fragment blocks that are pieces of the layer's tar, so that the blob of the layer has them as they are.

A file of a squashfs image names a fragment block and an offset in it, and what is between two tails is of no use to a
reader. So a fragment block may have the headers and the padding of the tar there: then the tar, compressed with zstd,
has the whole block as a frame (`envbuild.squashfs.pack.layer_frames`), and small files travel once. Headers compress
well: they take about one percent of a pack of small files.

The index names the members of a piece, so that an image does not get what another layer deleted
(`envbuild.squashfs.write.live_extents`). A tail that is stored elsewhere, and a header that would remain all the same,
are in no piece.
"""

from __future__ import annotations

from envbuild.oci.tar.member import WHITEOUT, Kind, Member
from envbuild.oci.tar.writer import BLOCK, encode_header
from envbuild.squashfs.codec import crc32
from envbuild.squashfs.pack.append_file import Buffer
from envbuild.squashfs.pack.fragments import FragmentWriter
from envbuild.squashfs.pack.index import LENGTH

LEAST = 8  # a piece that is shorter than one of so many parts of a block is not worth a block of its own
REPEATED = 1024  # bytes of a tail from which on an equal one is not stored again


class TarPieces:
    """A writer of such blocks in the order of the layer. What makes no piece goes to `tails`, and everything for a
    codec that a layer cannot have."""

    def __init__(self, tails: FragmentWriter) -> None:
        self.tails, self.block = tails, tails.index.block
        self.used = tails.index.codec.name == "zstd"
        self.piece = bytearray()
        self.first = self.last = 0  # rows of its members
        self.added: list[tuple[int, int, int]] = []  # (row, offset, key) of the tails in it
        self.keys: set[int] = set()
        self.size = 0  # of the tails, together

    def begin(self, row: int, member: Member) -> None:
        """Add the header of the member that becomes `row`."""
        if not self.used:
            return
        header = encode_header(member)
        tail = padded(member.size) if member.size < self.block else 0
        hidden = is_hidden(member) or len(header) > self.block
        if hidden or len(self.piece) + len(header) + tail > self.block:
            self.end()
        if not hidden:
            self._append(row, header)

    def add(self, row: int, content: Buffer) -> None:
        """Add the tail of the file `row`, whose header was added last: shorter than a block, and not empty."""
        key = crc32(content) << 32 | len(content)
        if self.used and not self._is_repeated(key, content):
            if len(self.piece) + padded(len(content)) > self.block:
                self.end()
            self.added.append((row, len(self.piece), key))
            self.keys.add(key)
            self.size += len(content)
            self._append(row, content)
            self.piece += bytes(-len(content) % BLOCK)
        else:
            self.end()
            self.tails.add(row, content, key)

    def end(self) -> None:
        """End the piece, as what comes next in the tar is not in a fragment block."""
        if not self.piece:
            return
        if len(self.piece) * LEAST >= self.block and self.size * 2 >= len(self.piece):
            self.tails.add_piece(bytes(self.piece), self.added, self.first << 32 | self.last + 1 - self.first)
        else:
            for row, offset, key in self.added:
                self.tails.add(row, bytes(self.piece[offset : offset + (key & LENGTH)]), key)
        self.piece.clear()
        self.added.clear()
        self.keys.clear()
        self.size = 0

    def flush(self) -> None:
        """End the last block."""
        self.end()
        self.tails.flush()

    def _append(self, row: int, content: Buffer) -> None:
        if not self.piece:
            self.first = row
        self.last = row
        self.piece += content

    def _is_repeated(self, key: int, content: Buffer) -> bool:
        return len(content) >= REPEATED and (key in self.keys or self.tails.find(key, content) is not None)


def is_hidden(member: Member) -> bool:
    """Return whether the header of a member is in no piece: that of a deletion, and one with more than names of a
    folder or a hard link, because no image shows whether these are replaced."""
    return WHITEOUT in member.path or (bool(member.xattrs) and member.kind in (Kind.DIR, Kind.HARDLINK))


def padded(size: int) -> int:
    """Return the bytes that `size` bytes take in a tar."""
    return size + -size % BLOCK
