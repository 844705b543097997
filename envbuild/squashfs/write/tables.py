"""Inodes, directory listings, ids and extended attributes of an image, from its tree and the plan of its data.

Written are the directories in the reverse of their numbers' order (`envbuild.squashfs.write.inode_order`), for each
first the inodes of all its children, then its listing; the root's inode last. So every reference that is needed is
known, and nothing has to be corrected afterwards.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence

from envbuild.core.errors import InputError
from envbuild.squashfs import format as sq
from envbuild.squashfs.codec import Compress
from envbuild.squashfs.pack.file import Pack
from envbuild.squashfs.pack.index import BLOCK, CHAR, DIR, FIFO, FILE, NONE, SYMLINK
from envbuild.squashfs.write.extents import DataPlan
from envbuild.squashfs.write.inode_order import InodeOrder
from envbuild.squashfs.write.limits import LAST_TIME, unsupported_metadata_messages
from envbuild.squashfs.write.merge import Node
from envbuild.squashfs.write.xattr_table import XattrTable

TYPES = {
    DIR: sq.DIRECTORY, FILE: sq.REGULAR, SYMLINK: sq.SYMLINK,
    BLOCK: sq.BLOCK_DEVICE, CHAR: sq.CHAR_DEVICE, FIFO: sq.FIFO,
}  # fmt: skip
HEADER_ENTRIES = 256  # kernel and unsquashfs refuse more under one header

Listing = tuple[int, int, int, list[bytes]]  # (piece, offset, length, index entries)


class Tables:
    """The encoder of the nodes of one image. `epoch` is the time of directories that no layer names, in seconds."""

    def __init__(
        self, packs: Sequence[Pack], plan: DataPlan, compress: Compress, *, epoch: int, all_root: bool
    ) -> None:
        self.plan, self.compress, self.epoch, self.all_root = plan, compress, epoch, all_root
        self.places = {id(pack): number for number, pack in enumerate(packs)}
        self.inodes, self.listings, self.attributes = (
            sq.MetadataWriter(compress),
            sq.MetadataWriter(compress),
            XattrTable(compress),
        )
        self.ids: dict[int, int] = {0: 0} if all_root else {}
        self.clamped: list[bytes] = []  # paths whose time squashfs cannot hold
        self.references: array[int] = array("Q")
        self.root = 0

    def write(self, found: InodeOrder) -> None:
        """Encode everything; afterwards the streams hold the inode and directory tables and `root` the root's
        reference.
        """
        self.references = array("Q", bytes(8 * found.inodes))
        listings: dict[int, Listing] = {}  # inode number → listing
        for node, children, parent in reversed(found.directories):
            self._inodes(node, children, listings)
            listings[node.number] = self._listing(children)
            if not parent:
                self._directory(node, found.inodes + 1, *listings.pop(node.number))
                self.root = self.references[node.number - 1] - 1

    def messages(self) -> list[str]:
        """Return one line for each kind of thing that squashfs could not hold."""
        return unsupported_metadata_messages(self.attributes.dropped, self.clamped)

    def export_entries(self) -> bytes:
        """Return the references by inode number."""
        return array("Q", (reference - 1 for reference in self.references)).tobytes()

    def id_entries(self) -> bytes:
        """Return the ids, by index."""
        if len(self.ids) > 0xFFFF:
            raise InputError(
                f"{len(self.ids)} different user and group ids; squashfs holds 65535",
                hint="leave out --keep-owners: everything is root's then, and the job's user's under enroot",
            )
        return struct.pack(f"<{len(self.ids)}I", *self.ids)

    # inodes
    def _xattr(self, node: Node) -> int:
        return sq.NO_XATTR if self.all_root else self.attributes.number(node)

    def _common(self, node: Node) -> tuple[int, int, int, int, int]:
        """Return mode, uid index, gid index, mtime, number."""
        if node.pack is None:
            uid = gid = 0
            mtime = self.epoch
        else:
            columns = node.pack.index.columns
            uid, gid, mtime = columns["uids"][node.row], columns["gids"][node.row], columns["mtimes"][node.row]
        uid_index = gid_index = 0
        if not self.all_root:
            ids = self.ids
            uid_index = ids.setdefault(uid, len(ids))
            gid_index = ids.setdefault(gid, len(ids))
        if not 0 <= mtime <= LAST_TIME:
            self.clamped.append(node.pack.index.paths[node.row] if node.pack else b"/")
            mtime = min(max(mtime, 0), LAST_TIME)
        return node.mode, uid_index & 0xFFFF, gid_index & 0xFFFF, mtime, node.number

    def _place(self, node: Node) -> None:
        # + 1: a reference may be 0, and 0 means not written yet
        piece, offset = self.inodes.position
        self.references[node.number - 1] = (piece << 16 | offset) + 1

    def _directory(self, node: Node, parent: int, piece: int, offset: int, length: int, index: list[bytes]) -> None:
        common, xattr = self._common(node), self._xattr(node)
        self._place(node)
        size = length + 3
        if not index and xattr == sq.NO_XATTR and size <= 0xFFFF:
            self.inodes.write(sq.INODE_DIR.pack(sq.DIRECTORY, *common, piece, node.names, size, offset, parent))
            return
        kind = sq.DIRECTORY + sq.EXTENDED
        head = sq.INODE_DIR_X.pack(kind, *common, node.names, size, piece, parent, len(index), offset, xattr)
        self.inodes.write(head + b"".join(index))

    def _other(self, node: Node) -> None:
        common, xattr = self._common(node), self._xattr(node)
        pack, row = node.pack, node.row
        assert pack is not None  # only directories come from nowhere
        columns = pack.index.columns
        self._place(node)
        extended = sq.EXTENDED if xattr != sq.NO_XATTR else 0
        kind = TYPES[node.kind] + extended
        if node.kind == SYMLINK:
            # Linux knows no other mode of a link, in spite of what the layer's writer put there
            data = sq.INODE_LINK.pack(kind, 0o777, *common[1:], node.names, len(node.link)) + node.link
        elif node.kind == FIFO:
            data = sq.INODE_IPC.pack(kind, *common, node.names)
        else:
            number = sq.device_number(columns["majors"][row], columns["minors"][row])
            data = sq.INODE_DEVICE.pack(kind, *common, node.names, number)
        self.inodes.write(data + struct.pack("<I", xattr) if extended else data)

    def _inodes(self, node: Node, children: list[tuple[bytes, Node]], listings: dict[int, Listing]) -> None:
        """Write the inodes of a directory's children. Small files, which nearly all inodes are, at once here."""
        stream, references, keep, ids = self.inodes, self.references, not self.all_root, self.ids
        out, part, encode = stream.out, stream.part, sq.INODE_FILE.pack
        last: Pack | None = None
        uid = gid = limit = place = 0
        for _, child in children:
            number, row, pack = child.number, child.row, child.pack
            if child.kind == DIR:
                self._directory(child, node.number, *listings.pop(number))
                continue
            if references[number - 1]:
                continue
            if pack is not last or pack is None:
                assert pack is not None  # only directories come from nowhere
                last, place = pack, self.places[id(pack)]
                columns, limit, copied = pack.index.columns, pack.index.block, self.plan.copied[place]
                sizes, mtimes, tails = columns["sizes"], columns["mtimes"], columns["tails"]
                fragments, offsets, xattrs = columns["fragments"], columns["offsets"], columns["xattrs"]
                uids, gids = columns["uids"], columns["gids"]
            size, mtime = sizes[row], mtimes[row]
            if child.kind != FILE:
                self._other(child)
                continue
            if size >= limit or child.names != 1 or not 0 <= mtime <= LAST_TIME or (keep and xattrs[row]):
                self._file(child)
                continue
            if keep:
                uid, gid = ids.setdefault(uids[row], len(ids)) & 0xFFFF, ids.setdefault(gids[row], len(ids)) & 0xFFFF
            fragment, offset = NONE, 0
            if tails[row]:
                found = copied.get(fragments[row])
                if found is None:
                    fragment, offset = self.plan.tail(place, fragments[row], offsets[row])
                else:
                    fragment, offset = found, offsets[row]
            references[number - 1] = (len(out) << 16 | len(part)) + 1
            part += encode(sq.REGULAR, child.mode, uid, gid, mtime, number, 0, fragment, offset, size)
            if len(part) >= sq.PIECE:
                stream.cut()

    def _file(self, node: Node) -> None:
        common, xattr = self._common(node), self._xattr(node)
        pack, row = node.pack, node.row
        assert pack is not None
        columns, number = pack.index.columns, self.places[id(pack)]
        size, sparse = columns["sizes"][row], columns["sparse"][row]
        # without stored blocks a start means nothing and is 0
        start = self.plan.starts[number][columns["starts"][row]] if columns["stored"][row] else 0
        fragment, offset = NONE, 0
        if columns["tails"][row]:
            fragment, offset = self.plan.tail(number, columns["fragments"][row], columns["offsets"][row])
        words = pack.index.words(row).tobytes() if size >= pack.index.block else b""
        self._place(node)
        if node.names == 1 and size <= 0xFFFFFFFF and start <= 0xFFFFFFFF and not sparse and xattr == sq.NO_XATTR:
            self.inodes.write(sq.INODE_FILE.pack(sq.REGULAR, *common, start, fragment, offset, size) + words)
            return
        sparse = min(sparse, size - 1) if sparse else 0  # as mksquashfs: a kernel computes st_blocks from it
        kind = sq.REGULAR + sq.EXTENDED
        self.inodes.write(
            sq.INODE_FILE_X.pack(kind, *common, start, size, sparse, node.names, fragment, offset, xattr) + words
        )

    # listings
    def _listing(self, children: list[tuple[bytes, Node]]) -> Listing:
        """Write a listing; returns (piece, offset, length, index entries).

        A new header begins after 256 entries, where the inodes' piece changes and where the number difference does
        not fit; and where 8192 bytes since the last index point would be passed: such a header gets an index entry,
        so that a look-up unpacks one piece.
        """
        if not children:
            return 0, 0, 0, []
        stream = self.listings
        start_piece, start_offset = stream.position
        length, indexed = 0, 0  # bytes of the listing so far; where the last index point is
        index: list[bytes] = []
        run: list[bytes] = []
        piece = base = run_length = 0
        due = b""  # first name after a header that gets an index entry

        def flush() -> None:
            nonlocal length, run_length, due
            if not run:
                return
            if due:
                index.append(sq.DIR_INDEX.pack(length, stream.position[0], len(due) - 1) + due)
                due = b""
            stream.write(sq.DIR_HEADER.pack(len(run) - 1, piece, base) + b"".join(run))
            length += run_length
            run.clear()
            run_length = 0

        references, pack, head, fixed = self.references, sq.DIR_ENTRY.pack, sq.DIR_HEADER.size, sq.DIR_ENTRY.size
        for name, child in children:
            number = child.number
            reference = references[number - 1] - 1
            new_piece = reference >> 16
            entry_size = fixed + len(name)
            passes = length + (run_length or head) + entry_size - indexed > sq.PIECE
            if (
                new_piece != piece
                or not run
                or passes
                or len(run) == HEADER_ENTRIES
                or not -0x8000 <= number - base <= 0x7FFF
            ):
                flush()
                # a fresh header may itself be what no longer fits
                if length + head + entry_size - indexed > sq.PIECE:
                    indexed, due = length, name
                piece, base, run_length = new_piece, number, head
            run.append(pack(reference & 0xFFFF, number - base, TYPES[child.kind], len(name) - 1) + name)
            run_length += entry_size
        flush()
        return start_piece, start_offset, length, index
