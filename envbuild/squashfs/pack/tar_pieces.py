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

from envbuild.core.errors import EnvbuildError
from envbuild.oci.tar.member import WHITEOUT, Kind, Member
from envbuild.oci.tar.writer import BLOCK, MAX_ID, MAX_SIZE, encode_header
from envbuild.squashfs.codec import crc32
from envbuild.squashfs.pack.append_file import Buffer
from envbuild.squashfs.pack.fragments import FragmentWriter

LEAST = 8  # a piece that is shorter than one of so many parts of a block is not worth a block of its own
ZEROS = bytes(BLOCK)
REPEATED = 1024  # bytes of a tail from which on an equal one is not stored again


class TarPieces:
    """A writer of such blocks in the order of the layer. What makes no piece goes to `tails`, and everything for a
    codec that a layer cannot have."""

    def __init__(self, tails: FragmentWriter) -> None:
        self.tails, self.block = tails, tails.index.block
        self.used = tails.index.codec.name == "zstd"
        self.parts: list[Member | bytes] = []  # of the piece: a header is made once the piece is complete
        self.length = 0  # of the piece
        self.first = self.last = 0  # rows of its members
        self.added: list[tuple[int, int, int, bytes]] = []  # (row, offset, key, content) of the tails in it
        self.keys: set[int] = set()
        self.size = 0  # of the tails, together

    def begin(self, row: int, member: Member) -> None:
        """Add the header of the member that becomes `row`."""
        if not self.used:
            return
        length = header_length(member)
        tail = padded(member.size) if member.size < self.block else 0
        hidden = is_hidden(member) or length > self.block
        if hidden or self.length + length + tail > self.block:
            self.end()
        if not hidden:
            self._append(row, member, length)

    def add(self, row: int, content: Buffer) -> None:
        """Add the tail of the file `row`, whose header was added last: shorter than a block, and not empty."""
        size = len(content)
        key = crc32(content) << 32 | size
        if self.used and not self._is_repeated(key, content):
            length = padded(size)
            if self.length + length > self.block:
                self.end()
            data = bytes(content)
            self.added.append((row, self.length, key, data))
            self.keys.add(key)
            self.size += size
            self._append(row, data, length)
        else:
            self.end()
            self.tails.add(row, content, key)

    def end(self) -> None:
        """End the piece, as what comes next in the tar is not in a fragment block."""
        if not self.parts:
            return
        if self.length * LEAST >= self.block and self.size * 2 >= self.length:
            content = b"".join(map(as_tar, self.parts))
            if len(content) != self.length:
                raise EnvbuildError("a header of a layer has another length")  # tails would be at other places
            places = [(row, offset, key) for row, offset, key, _ in self.added]
            self.tails.add_piece(content, places, self.first << 32 | self.last + 1 - self.first)
        else:
            for row, _, key, data in self.added:
                self.tails.add(row, data, key)
        self.parts, self.added, self.keys = [], [], set()
        self.length = self.size = 0

    def flush(self) -> None:
        """End the last block."""
        self.end()
        self.tails.flush()

    def _append(self, row: int, part: Member | bytes, length: int) -> None:
        if not self.parts:
            self.first = row
        self.last = row
        self.parts.append(part)
        self.length += length

    def _is_repeated(self, key: int, content: Buffer) -> bool:
        return len(content) >= REPEATED and (key in self.keys or self.tails.find(key, content) is not None)


def as_tar(part: Member | bytes) -> bytes:
    """Return the header of a member, or data of a file with the zeros behind it."""
    if isinstance(part, Member):
        return encode_header(part)
    return part + ZEROS[: -len(part) % BLOCK]


def header_length(member: Member) -> int:
    """Return the bytes of the header of a member, which is made only where its length is not clear."""
    is_plain = (
        len(member.path) < 100
        and len(member.link) <= 100
        and not member.xattrs
        and member.device == (0, 0)
        and 0 <= member.mtime <= MAX_SIZE
        and 0 <= member.size <= MAX_SIZE
        and 0 <= member.uid <= MAX_ID
        and 0 <= member.gid <= MAX_ID
    )
    return BLOCK if is_plain else len(encode_header(member))


def is_hidden(member: Member) -> bool:
    """Return whether the header of a member is in no piece: that of a deletion, and one with more than names of a
    folder or a hard link, because no image shows whether these are replaced."""
    return WHITEOUT in member.path or (bool(member.xattrs) and member.kind in (Kind.DIR, Kind.HARDLINK))


def padded(size: int) -> int:
    """Return the bytes that `size` bytes take in a tar."""
    return size + -size % BLOCK
