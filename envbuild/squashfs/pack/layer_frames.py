"""The layer of a pack as a compressed tar that has the blocks of the pack as they are.

A tar that is compressed with zstd is any number of frames (RFC 8878, 3.1), and a block of a squashfs file with zstd is
one frame. So what such a pack has of a file becomes a part of the layer's blob without another compression, and who has
the blob has those bytes of the pack. Blocks that did not shrink become frames of raw blocks. Headers, tails (they
share blocks of the pack with others) and repeated files are compressed for the blob alone.

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
from envbuild.oci.tar.writer import TarSink
from envbuild.squashfs.codec import Codec
from envbuild.squashfs.pack.file import PAGE, Pack
from envbuild.squashfs.pack.index import FILE
from envbuild.squashfs.pack.reader import PackReader, StoredBlock

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


def shared_size(pack: Pack) -> int:
    """Return how many bytes of a pack the blob of its layer would have; 0 for a pack of another codec."""
    index, columns = pack.index, pack.index.columns
    if index.codec.name != "zstd":
        return 0
    rows = (row for row in range(len(index)) if index.kinds[row] == FILE and columns["stored"][row])
    return sum({columns["starts"][row]: columns["stored"][row] for row in rows}.values())


def write_layer(pack: Pack, out: IO[bytes]) -> tuple[str, list[Shared]]:
    """Write the compressed layer of a pack, whose codec is zstd. Return its diff_id, and what it shares with the pack,
    by position in both. Raises EnvbuildError for a damaged pack."""
    reader, frames = PackReader(pack), _Frames(out)
    tar = TarSink(frames)  # type: ignore[arg-type]  # only write() is used
    for row, member in reader.members():
        tar.begin(member)
        frames.left = pack.index.columns["stored"][row]
        for block in reader.blocks(row):
            if block.stored:
                frames.block = block
                tar.data(block.content)
            else:
                tar.zeros(block.size)
        if tail := reader.tail(row):
            tar.data(tail)
        tar.end()
    tar.close()
    frames.flush()
    return tar.diff_id, frames.shared


@dataclass(slots=True)
class _Frames:
    """A file for the tar; `block`: of the pack, whose content is written next; `left`: bytes of its file in the pack
    from there on."""

    out: IO[bytes]
    size: int = 0
    text: bytearray = field(default_factory=bytearray)
    block: StoredBlock | None = None
    left: int = 0
    end: int = 0  # in the pack, of what is shared
    shared: list[Shared] = field(default_factory=list)
    codec: Codec = field(default_factory=lambda: Codec("zstd", ZSTD_LEVEL))

    def write(self, content: bytes) -> None:
        block, self.block = self.block, None
        if block is None or not self._is_frame(block):
            self.text += content
            if len(self.text) >= TEXT:
                self.flush()
            return
        self.flush()
        parts = list(raw_blocks(block.size)) if block.is_raw else [(b"", 0, len(block.stored))]
        head_size, run = len(parts[0][0]), len(block.stored) if block.is_raw else self.left
        if block.at >= self.end and run >= LEAST and (head_size or not self._continues(block.at)):
            self._skip((block.at - self.size - head_size) % PAGE)
        for head, at, length in parts:
            self._write(head)
            if block.at + at >= self.end:
                self._share(block.at + at, length)
            self._write(block.stored[at : at + length])
        self.left -= len(block.stored)

    def _is_frame(self, block: StoredBlock) -> bool:
        """Return whether a block becomes a frame of its own. Another user may have written the pack: a frame of another
        magic number could be one that not every reader unpacks to the same."""
        return block.at >= self.end if block.is_raw else block.stored[:4] == MAGIC

    def flush(self) -> None:
        """Write what is compressed for the blob alone."""
        if self.text:
            self._write(self.codec.compress(self.text))
            self.text.clear()

    def _continues(self, at: int) -> bool:
        """Return whether what is at `at` in the pack comes behind what was shared last, in both."""
        last = self.shared[-1] if self.shared else Shared(-1, -1, 0)
        return (last.pack + last.length, last.blob + last.length) == (at, self.size)

    def _skip(self, count: int) -> None:
        """Write a frame of `count` bytes, or a page more, that readers skip."""
        if count:
            count += PAGE if count < SKIPPABLE.size else 0
            self._write(SKIPPABLE.pack(SKIPPED, count - SKIPPABLE.size) + bytes(count - SKIPPABLE.size))

    def _share(self, at: int, length: int) -> None:
        self.end = at + length
        if self._continues(at):
            last = self.shared[-1]
            self.shared[-1] = last._replace(length=last.length + length)
            return
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
