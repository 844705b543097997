"""The body of an image's file: data from packs, new fragment blocks, tables, superblock.

The packs' data is in files of their own and is copied, or it is in the image's own file already
(`envbuild.squashfs.write.direct_image`) and is moved down; the bytes of the image are the same.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from envbuild.core.errors import PublishError
from envbuild.squashfs import format as sq
from envbuild.squashfs.codec import Codec
from envbuild.squashfs.pack.append_file import write_all
from envbuild.squashfs.pack.checksums import raise_difference
from envbuild.squashfs.pack.file import PAGE, Pack, damaged_pack
from envbuild.squashfs.pack.index import RAW
from envbuild.squashfs.write import copy_extents
from envbuild.squashfs.write.dedup import open_packs
from envbuild.squashfs.write.digested_file import DigestedFile
from envbuild.squashfs.write.extents import DataPlan, Range, plan_data
from envbuild.squashfs.write.inode_order import InodeOrder, number_inodes
from envbuild.squashfs.write.merge import MergedTree
from envbuild.squashfs.write.move_extents import Mover
from envbuild.squashfs.write.repack_fragments import write_new_fragments
from envbuild.squashfs.write.tables import Tables
from envbuild.squashfs.write.unprivileged import make_unprivileged


@dataclass(frozen=True, slots=True)
class ImageBody:
    """Size of the file and inodes of the image, one line for each repair; `copied` bytes came from packs as they were,
    `repacked` bytes of fragment blocks were packed again. `sha256`: empty if it was not requested.
    """

    size: int
    inodes: int
    messages: tuple[str, ...]
    copied: int
    repacked: int
    sha256: str = ""


def write_image_body(
    file: int,
    packs: Sequence[Pack],
    tree: MergedTree,
    codec: Codec,
    block: int,
    *,
    epoch: int,
    all_root: bool,
    keep_dev: bool = False,
    jobs: int = 0,
    spool: int = 0,
    digest: bool = False,
) -> ImageBody:
    """Write the image of `tree` into the open `file`. `spool`: 0, or `file` holds the packs' data, which ends there.
    `jobs` threads (0: as many as this process may use). `digest`: compute the sha256 of the file, and compare its data
    with the checksums of the packs; not with `spool`. Raises DamagedPackError.
    """
    jobs = jobs or len(os.sched_getaffinity(0))
    messages = list(make_unprivileged(tree, keep_dev)) if all_root else []
    found = number_inodes(tree, packs)
    options = compressor_options(codec)
    start = sq.SUPERBLOCK.size + len(options)
    planned = plan_data(packs, found.live, start, jobs)
    if not spool:
        os.ftruncate(file, planned.copied_end)
    with ThreadPoolExecutor(2, thread_name_prefix="copy") as pool:
        if spool:
            data = pool.submit(compact_in_place, file, packs, planned, codec, start, spool, jobs)
        else:
            copied = None if digest else pool.submit(copy_extents.copy_ranges, packs, planned.ranges, file)
            data = pool.submit(write_new_fragments, packs, planned, codec, file, planned.copied_end, jobs)
        tables = Tables(packs, planned, codec.tables.compressor(), epoch=epoch, all_root=all_root)
        tables.write(found)
        words = data.result()
        if not spool and copied:
            copied.result()
    fragments, end = list(planned.fragments), planned.copied_end
    for word in words:
        fragments.append((end, word))
        end += word & ~RAW
    metadata, superblock = assemble_tables(tables, found, fragments, end, codec, block, epoch)
    used = end + len(metadata)
    size = used + -used % PAGE  # a loop device needs whole pages
    sha256 = ""
    if digest:
        sha256 = write_digested(file, packs, planned, superblock + options, end, metadata, size)
    else:
        write_all(file, [superblock + options], 0)
        write_all(file, [metadata], end)
    os.ftruncate(file, used)
    os.ftruncate(file, size)  # the rest is zeros now
    os.fsync(file)
    length = sum(length for _, _, length, _ in planned.ranges)
    repacked = end - planned.copied_end
    return ImageBody(size, found.inodes, (*messages, *tables.messages()), length, repacked, sha256)


def write_digested(
    file: int,
    packs: Sequence[Pack],
    planned: DataPlan,
    head: bytes,
    end: int,
    metadata: bytes,
    size: int,
) -> str:
    """Write an image of `size` bytes from front to back and return its sha256: `head`, the planned data, the new
    fragment blocks, which are in the file already and end at `end`, and `metadata`. Raises DamagedPackError.
    """
    with DigestedFile(file, planned.checksums) as out, open_packs(packs) as files:
        out.write(head)
        for number, at, length, to in planned.ranges:
            out.write(bytes(to - out.position))
            if not out.copy(files.open(number), packs[number].base + at, length):
                raise damaged_pack(packs[number])
        if not out.copy(file, out.position, end - out.position):
            raise PublishError("another process truncated the file while it was written")
        out.write(metadata + bytes(size - end - len(metadata)))
        sha256 = out.finish()
        raise_difference(out.comparison, Path(f"/proc/self/fd/{file}"))
    return sha256


def compressor_options(codec: Codec) -> bytes:
    """Return what is stored behind the superblock; empty for a codec without options."""
    return struct.pack("<H", len(codec.options) | sq.STORED) + codec.options if codec.options else b""


def plan_ranges(
    packs: Sequence[Pack], tree: MergedTree, codec: Codec, *, all_root: bool, keep_dev: bool = False, jobs: int = 0
) -> list[Range]:
    """Return the ranges of packs that `write_image_body` copies into the image of `tree`, and write nothing."""
    if all_root:
        make_unprivileged(tree, keep_dev)
    found = number_inodes(tree, packs)
    start = sq.SUPERBLOCK.size + len(compressor_options(codec))
    return plan_data(packs, found.live, start, jobs or len(os.sched_getaffinity(0))).ranges


def compact_in_place(
    file: int, packs: Sequence[Pack], planned: DataPlan, codec: Codec, start: int, spool: int, jobs: int
) -> list[int]:
    """Move data that is in the image's own file to its final positions: new fragment blocks are made first, behind all
    data; then live data moves down in its order, which overwrites nothing that is still needed; then what is between
    pieces becomes zeros. Returns the new blocks' size words.
    """
    words = write_new_fragments(packs, planned, codec, file, spool, jobs)
    end = start
    with Mover(file) as mover:
        for number, at, length, to in planned.ranges:
            if not mover.down(packs[number].base + at, to, length):
                raise damaged_pack(packs[number])
            write_all(file, [bytes(to - end)], end)
            end = to + length
        mover.down(spool, planned.copied_end, sum(word & ~RAW for word in words))
    return words


def assemble_tables(
    tables: Tables,
    found: InodeOrder,
    fragments: Sequence[tuple[int, int]],
    at: int,
    codec: Codec,
    block: int,
    epoch: int,
) -> tuple[bytes, bytes]:
    """Return (all tables in one piece, which is stored at `at`; superblock). `fragments` are (position, size word).
    Readers insist on this order and on no byte between two tables.
    """
    parts: list[bytes] = []
    compress = codec.tables.compress

    def put(data: bytes) -> int:
        nonlocal at
        parts.append(data)
        at += len(data)
        return at - len(data)

    def put_table(entries: bytes) -> int:
        data, position = sq.lookup_table(entries, compress, at)
        put(data)
        return position

    flags = sq.EXPORT | sq.ALWAYS_FRAGMENTS | sq.DUPLICATES
    flags |= sq.OPTIONS if codec.options else 0
    flags |= sq.UNCOMPRESSED if codec.name == "none" else 0
    inode_table = put(tables.inodes.finish())
    directory_table = put(tables.listings.finish())
    fragment_table = sq.MISSING
    if fragments:
        fragment_table = put_table(b"".join(struct.pack("<QII", position, word, 0) for position, word in fragments))
    export_table = put_table(tables.export_entries())
    id_table = put_table(tables.id_entries())
    xattr_table = sq.MISSING
    if tables.attributes.numbers:
        pairs = put(tables.attributes.stream.finish())
        data, position = sq.lookup_table(bytes(tables.attributes.entries), compress, at)
        head = struct.pack("<QII", pairs, len(tables.attributes.numbers), 0)
        split = position - at
        put(data[:split])
        xattr_table = put(head + data[split:])
    else:
        flags |= sq.NO_XATTRS
    superblock = sq.Superblock(
        inodes=found.inodes, time=min(max(epoch, 0), 0xFFFFFFFF), block=block, fragments=len(fragments),
        codec=codec.id, flags=flags, ids=len(tables.ids), root=tables.root, used=at, id_table=id_table,
        xattr_table=xattr_table, inode_table=inode_table, directory_table=directory_table,
        fragment_table=fragment_table, export_table=export_table,
    )  # fmt: skip
    return b"".join(parts), superblock.pack()
