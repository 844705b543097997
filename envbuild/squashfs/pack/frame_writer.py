"""Frames of zstd that are the blob of a layer: blocks of its pack as they are, and what the blob alone has.

What is shared begins at the same place of a page in the blob and in the pack, behind a frame that readers skip: then a
file system with reflinks shares these pages of the blob with a squashfs file, as it does with those of a pack.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, NamedTuple

from envbuild.core.errors import EnvbuildError
from envbuild.oci.tar.compress import ZSTD_LEVEL
from envbuild.squashfs.codec import Codec
from envbuild.squashfs.pack.file import PAGE
from envbuild.squashfs.pack.reader import StoredBlock

TEXT = 1 << 20  # bytes that are compressed together, at least
MAX_RAW = 1 << 17  # bytes of a raw block of zstd (RFC 8878, 3.1.1.2.4)
# Magic number; descriptor: a size of four bytes, which is also the window, no checksum; that size (RFC 8878, 3.1.1.1).
RAW_FRAME = struct.Struct("<4sBI")
SKIPPABLE, SKIPPED = struct.Struct("<II"), 0x184D2A50  # magic number, and bytes that follow (RFC 8878, 3.1.2)
LEAST = 1 << 16  # bytes of a raw block, or of a file, that are placed by the page: 6 percent more at most
MAGIC, SINGLE_SEGMENT = b"\x28\xb5\x2f\xfd", 0xA0


class Shared(NamedTuple):
    """`length` bytes from `pack` on of a pack that are those from `blob` on of the layer's blob."""

    pack: int
    blob: int
    length: int


@dataclass(slots=True)
class FrameWriter:
    """A file for the tar; `block`: of the pack, whose content is written next; `left`: bytes of its file in the pack
    from there on. `piece`: a fragment block that may be what `text` has from `begins` on."""

    out: IO[bytes]
    most: int  # bytes of a block of the pack
    size: int = 0
    text: bytearray = field(default_factory=bytearray)
    block: StoredBlock | None = None
    left: int = 0
    piece: StoredBlock | None = None
    begins: int = 0
    end: int = 0  # in the pack, of what is shared
    shared: list[Shared] = field(default_factory=list)
    codec: Codec = field(default_factory=lambda: Codec("zstd", ZSTD_LEVEL))

    def write(self, content: bytes) -> None:
        block, self.block = self.block, None
        if block and self._is_frame(block):
            self.flush()
            self._write_frame(block, len(block.stored) if block.is_raw else self.left)
            self.left -= len(block.stored)
            return
        self.text += content
        if self.piece:
            self._end_piece(self.piece)
        elif len(self.text) >= TEXT + self.most:  # a piece may begin before the tail by which it is found
            self._compress(len(self.text) - self.most)

    def expect(self, piece: StoredBlock, offset: int) -> None:
        """Expect a fragment block in the tar that has what is written next at `offset`."""
        self.begins = len(self.text) - offset
        self.piece = piece if self.begins >= 0 and self._is_frame(piece) else None

    def _end_piece(self, piece: StoredBlock) -> None:
        """Write the fragment block that was expected once all of it is in the text, if it is what the text has."""
        if len(self.text) < (end := self.begins + piece.size):
            return
        self.piece = None
        with memoryview(self.text) as text:
            is_same = text[self.begins : end] == piece.content
        if is_same:
            self._compress(self.begins)
            self._write_frame(piece, len(piece.stored))
            del self.text[: piece.size]

    def _write_frame(self, block: StoredBlock, run: int) -> None:
        """Write a block of the pack as a frame; `run`: bytes of the pack that follow each other there and here."""
        parts = list(raw_blocks(block.size)) if block.is_raw else [(b"", 0, len(block.stored))]
        head_size = len(parts[0][0])
        if block.at >= self.end and run >= LEAST:
            self._skip((block.at - self.size - head_size) % PAGE)
        for head, at, length in parts:
            self._write(head)
            if block.at + at >= self.end:
                self._share(block.at + at, length)
            self._write(block.stored[at : at + length])

    def _is_frame(self, block: StoredBlock) -> bool:
        """Return whether a block becomes a frame of its own. Another user may have written the pack: a frame of another
        magic number could be one that not every reader unpacks to the same."""
        return block.at >= self.end if block.is_raw else block.stored[:4] == MAGIC

    def flush(self) -> None:
        """Write all that is compressed for the blob alone."""
        self.piece = None
        self._compress(len(self.text))

    def _compress(self, count: int) -> None:
        """Write the first `count` bytes of the text as a frame for the blob alone."""
        if count:
            self._write(self.codec.compress(self.text[:count]))
            del self.text[:count]

    def _skip(self, count: int) -> None:
        """Write a frame of `count` bytes, or a page more, that readers skip."""
        if count:
            count += PAGE if count < SKIPPABLE.size else 0
            self._write(SKIPPABLE.pack(SKIPPED, count - SKIPPABLE.size) + bytes(count - SKIPPABLE.size))

    def _share(self, at: int, length: int) -> None:
        self.end = at + length
        last = self.shared[-1] if self.shared else Shared(-1, -1, 0)
        if (last.pack + last.length, last.blob + last.length) == (at, self.size):  # it continues that, in both
            self.shared[-1] = last._replace(length=last.length + length)
        else:
            self.shared.append(Shared(at, self.size, length))

    def _write(self, data: bytes) -> None:
        self.out.write(data)
        self.size += len(data)


def raw_blocks(size: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield the parts of a frame with `size` bytes that are not compressed: what precedes each, its position in them,
    and its length."""
    head = RAW_FRAME.pack(MAGIC, SINGLE_SEGMENT, size)
    for at in range(0, size, MAX_RAW):
        length = min(MAX_RAW, size - at)
        is_last = at + length == size
        yield head + (length << 3 | is_last).to_bytes(3, "little"), at, length
        head = b""


def check_shared(shared: Sequence[Shared], pack: int, blob: int) -> None:
    """Raise EnvbuildError unless `shared` are parts of a pack and a blob (bytes), each byte once, in their order."""
    ends = 0, 0
    for part in shared:
        if part.length <= 0 or part.pack < ends[0] or part.blob < ends[1]:
            raise EnvbuildError("parts of a layer overlap")
        ends = part.pack + part.length, part.blob + part.length
    if ends[0] > pack or ends[1] > blob:
        raise EnvbuildError("parts of a layer are outside of it")
