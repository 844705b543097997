"""Write a squashfs 4.0 image from packs: copy what lives, write the metadata anew.

The bytes of an image depend on its packs, the added members and `epoch`, on nothing else: not on the number of
threads, not on whether a pack was made now or earlier.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from envbuild.errors import EnvbuildError
from envbuild.oci.member import Member
from envbuild.squashfs import extents
from envbuild.squashfs import format as sq
from envbuild.squashfs.codec import Codec
from envbuild.squashfs.index import Pack, read_pack
from envbuild.squashfs.merge import Tree, merge
from envbuild.squashfs.pack import PackWriter
from envbuild.squashfs.plain import make_plain
from envbuild.squashfs.tables import Tables, Walk, walk

PAD = 4096  # a loop device needs whole pages

Extra = tuple[Member, bytes]  # a member to add, and its content


@dataclass(frozen=True, slots=True)
class Written:
    """A finished image: its path, size in bytes, inodes, and what was repaired (one line each).

    `copied` bytes came from packs as they were, `repacked` bytes of fragment blocks had to be made anew.
    """

    path: Path
    size: int
    inodes: int
    messages: tuple[str, ...] = ()
    copied: int = 0
    repacked: int = 0


def write_image(
    packs: Sequence[Pack], out: Path, *, epoch: int, all_root: bool = True, extra: Sequence[Extra] = ()
) -> Written:
    """Write the image of `packs` (bottom first) with `extra` members on top to `out` (mode 0644, renamed into place).

    `epoch` (seconds) is the image's creation time and the time of directories that no layer names. With `all_root`
    everything belongs to root and the tree becomes what an unprivileged user can unpack (`envbuild.squashfs.plain`:
    no device nodes, nothing below /dev, no extended attributes, u+r files, u+rwx directories). Without it owners,
    device nodes and user., trusted. and security. attributes are kept. Raises EnvbuildError when packs do not fit
    together or cannot be read.
    """
    with adding(packs, extra, out) as added:
        everything = [*packs, *added]
        return write_tree(everything, merge(everything), out, epoch=epoch, all_root=all_root)


def write_tree(packs: Sequence[Pack], tree: Tree, out: Path, *, epoch: int, all_root: bool = True) -> Written:
    """As `write_image`, for a tree that `packs` were merged to (it is changed: numbered, and made plain when
    `all_root`).
    """
    from envbuild.squashfs.reader import check_image

    codec, block = parameters(packs)
    messages = list(make_plain(tree)) if all_root else []
    found = walk(tree, packs)
    options = struct.pack("<H", len(codec.options) | sq.STORED) + codec.options
    plan = extents.plan(packs, found.live, sq.SUPERBLOCK.size + len(options), codec)
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(4)}")
    file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="copy") as pool:
            copying = pool.submit(extents.copy, packs, plan.ranges, file)
            tables = Tables(packs, plan, codec.compress, epoch=epoch, all_root=all_root)
            tables.write(found)
            metadata, superblock = assemble(tables, found, plan, codec, block, epoch)
            copying.result()
        write_at(file, superblock + options, 0)
        at = plan.copied_end
        for data in (*plan.repacked, metadata):
            write_at(file, data, at)
            at += len(data)
        size = at + -at % PAD
        os.ftruncate(file, size)
        os.fchmod(file, 0o644)
        os.fsync(file)
        check_image(temporary)
        temporary.replace(out)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)
    if tables.dropped_xattrs:
        names = ", ".join(sorted(ascii(os.fsdecode(name))[1:-1] for name in tables.dropped_xattrs))
        messages.append(f"dropped extended attributes that squashfs cannot hold: {names}")
    copied = sum(length for _, _, length, _ in plan.ranges)
    return Written(out, size, found.inodes, tuple(messages), copied, plan.end - plan.copied_end)


def assemble(
    tables: Tables, found: Walk, plan: extents.Plan, codec: Codec, block: int, epoch: int
) -> tuple[bytes, bytes]:
    """(all tables in one piece, superblock). Readers insist on this order and on no byte between two tables."""
    parts: list[bytes] = []
    at = plan.end

    def put(data: bytes) -> int:
        nonlocal at
        parts.append(data)
        at += len(data)
        return at - len(data)

    def put_table(entries: bytes) -> int:
        data, position = sq.table(entries, codec.compress, at)
        put(data)
        return position

    flags = sq.EXPORT | sq.OPTIONS | sq.ALWAYS_FRAGMENTS | sq.DUPLICATES
    inode_table = put(tables.inodes.finish())
    directory_table = put(tables.listings.finish())
    fragment_table = sq.MISSING
    if plan.fragments:
        fragment_table = put_table(
            b"".join(struct.pack("<QII", position, word, 0) for position, word in plan.fragments)
        )
    export_table = put_table(tables.export_entries())
    id_table = put_table(tables.id_entries())
    xattr_table = sq.MISSING
    if tables.xattr_numbers:
        pairs = put(tables.xattrs.finish())
        data, position = sq.table(bytes(tables.xattr_ids), codec.compress, at)
        head = struct.pack("<QII", pairs, len(tables.xattr_numbers), 0)
        split = position - at
        put(data[:split])
        xattr_table = put(head + data[split:])
    else:
        flags |= sq.NO_XATTRS
    superblock = sq.Superblock(
        inodes=found.inodes, time=min(max(epoch, 0), 0xFFFFFFFF), block=block, fragments=len(plan.fragments),
        codec=codec.id, flags=flags, ids=len(tables.ids), root=tables.root, used=at, id_table=id_table,
        xattr_table=xattr_table, inode_table=inode_table, directory_table=directory_table,
        fragment_table=fragment_table, export_table=export_table,
    )  # fmt: skip
    return b"".join(parts), superblock.pack()


def parameters(packs: Sequence[Pack]) -> tuple[Codec, int]:
    """Codec and block size that all packs share; the level for new blocks is the lowest pack's."""
    if not packs:
        raise EnvbuildError("an image needs at least one layer")
    index = packs[0].index
    for pack in packs:
        if (pack.index.codec.name, pack.index.block) != (index.codec.name, index.block):
            raise EnvbuildError(
                f"packs differ: {index.codec.name} with blocks of {index.block} bytes, and {pack.index.codec.name} with"
                f" {pack.index.block}",
                hint="export again with one codec and one block size",
                where=str(pack.path),
            )
    return index.codec, index.block


@contextlib.contextmanager
def adding(packs: Sequence[Pack], extra: Sequence[Extra], out: Path) -> Iterator[tuple[Pack, ...]]:
    """The pack of `extra` members, beside `out` as long as it is needed; nothing when there are none."""
    if not extra:
        yield ()
        return
    codec, block = parameters(packs)
    path = out.with_name(f".{out.name}.{secrets.token_hex(4)}.extra")
    try:
        with PackWriter(path, codec=codec.name, level=codec.level, block=block, jobs=1) as writer:
            for member, content in sorted(extra, key=lambda item: item[0].path):
                writer.begin(member)
                writer.data(content)
                writer.end()
        yield (read_pack(path),)
    finally:
        path.unlink(missing_ok=True)


def write_at(file: int, data: bytes, at: int) -> None:
    """Write all of `data` at position `at`."""
    view = memoryview(data)
    while view:
        done = os.pwrite(file, view, at)
        view, at = view[done:], at + done
