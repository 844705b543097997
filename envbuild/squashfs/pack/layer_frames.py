"""The layer of a pack as a compressed tar that has the blocks of the pack as they are.

A tar that is compressed with zstd is any number of frames (RFC 8878, 3.1), and a block of a squashfs file with zstd is
one frame. So a block of a file, and a fragment block that is a piece of the tar (`envbuild.squashfs.pack.tar_pieces`),
becomes a part of the layer's blob without another compression, and who has the blob has those bytes of the pack. Blocks
that did not shrink become frames of raw blocks. The rest, as deletions and repeated files, is compressed for the blob
alone.
"""

from __future__ import annotations

from typing import IO

from envbuild.oci.tar.writer import TarSink
from envbuild.squashfs.pack.file import Pack
from envbuild.squashfs.pack.frame_writer import FrameWriter, Shared
from envbuild.squashfs.pack.index import FILE, RAW
from envbuild.squashfs.pack.reader import PackReader


def shared_size(pack: Pack) -> int:
    """Return how many bytes of a pack the blob of its layer would have; 0 for a pack of another codec."""
    index, columns = pack.index, pack.index.columns
    if index.codec.name != "zstd":
        return 0
    rows = (row for row in range(len(index)) if index.kinds[row] == FILE and columns["stored"][row])
    blocks = sum({columns["starts"][row]: columns["stored"][row] for row in rows}.values())
    pieces = zip(columns["fragment_words"], columns["fragment_members"], strict=True)
    return blocks + sum(word & ~RAW for word, members in pieces if members)


def find_pieces(pack: Pack) -> dict[int, int]:
    """Return the first row with a tail in each fragment block that is a piece of the tar → its number."""
    columns = pack.index.columns
    found: dict[int, int] = {}
    left = {number for number, members in enumerate(columns["fragment_members"]) if members}
    for row, (tail, number) in enumerate(zip(columns["tails"], columns["fragments"], strict=True)):
        if tail and number in left:
            left.remove(number)
            found[row] = number
    return found


def write_layer(pack: Pack, out: IO[bytes]) -> tuple[str, list[Shared]]:
    """Write the compressed layer of a pack, whose codec is zstd. Return its diff_id, and what it shares with the pack,
    by position in both. Raises EnvbuildError for a damaged pack."""
    reader, frames, pieces = PackReader(pack), FrameWriter(out, pack.index.block), find_pieces(pack)
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
            if row in pieces:
                frames.expect(reader.fragment_block(pieces[row]), pack.index.columns["offsets"][row])
            tar.data(tail)
        tar.end()
    tar.close()
    frames.flush()
    return tar.diff_id, frames.shared
