"""Inodes, directory listings, ids and extended attributes of an image, from its tree and the plan of its data.

Numbers: the root is 1, then directory by directory (pre-order, names in byte order) all children of one in a row, so
that a listing needs few headers. Written: the directories in reverse, for each first the inodes of all its children,
then its listing; the root's inode last. So every reference that is needed is known, and nothing has to be mended
afterwards.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from envbuild.errors import EnvbuildError
from envbuild.squashfs import format as sq
from envbuild.squashfs.codec import Compress
from envbuild.squashfs.extents import Plan
from envbuild.squashfs.index import BLOCK, CHAR, DIR, FIFO, FILE, NONE, SYMLINK, Pack
from envbuild.squashfs.merge import Node, Tree

TYPES = {
    DIR: sq.DIRECTORY, FILE: sq.REGULAR, SYMLINK: sq.SYMLINK,
    BLOCK: sq.BLOCK_DEVICE, CHAR: sq.CHAR_DEVICE, FIFO: sq.FIFO,
}  # fmt: skip
PREFIXES = {b"user.": 0, b"trusted.": 1, b"security.": 2}
HEADER_ENTRIES = 256  # kernel and unsquashfs refuse more under one header

Directory = tuple[Node, list[tuple[bytes, Node]], int]  # (node, sorted children, parent's number)


@dataclass(slots=True)
class Walk:
    """A tree in the order of its inode numbers: directories in pre-order, number of inodes, living file rows per
    pack.
    """

    directories: list[Directory] = field(default_factory=list)
    inodes: int = 1
    live: list[list[int]] = field(default_factory=list)


def walk(tree: Tree, packs: Sequence[Pack]) -> Walk:
    """Number the nodes of `tree`, count their names, and find what lives in `packs`."""
    places = {id(pack): number for number, pack in enumerate(packs)}
    result = Walk(live=[[] for _ in packs])
    tree.root.number = 1
    stack: list[tuple[Node, int]] = [(tree.root, 0)]
    while stack:
        node, parent = stack.pop()
        children = sorted(node.children.items())
        result.directories.append((node, children, parent))
        node.names = 2
        below = []
        for _, child in children:
            if not child.number:
                result.inodes += 1
                child.number, child.names = result.inodes, 0
                if child.kind == FILE and child.pack is not None:
                    result.live[places[id(child.pack)]].append(child.row)
            if child.kind == DIR:
                node.names += 1
                below.append((child, node.number))
            else:
                child.names += 1
        stack.extend(reversed(below))
    return result


class Tables:
    """Encodes the nodes of one image. `epoch` is the time of directories that no layer names, in seconds."""

    def __init__(self, packs: Sequence[Pack], plan: Plan, compress: Compress, *, epoch: int, all_root: bool) -> None:
        self.plan, self.compress, self.epoch, self.all_root = plan, compress, epoch, all_root
        self.places = {id(pack): number for number, pack in enumerate(packs)}
        self.inodes, self.listings, self.xattrs = sq.Stream(compress), sq.Stream(compress), sq.Stream(compress)
        self.ids: dict[int, int] = {0: 0} if all_root else {}
        self.xattr_numbers: dict[tuple[tuple[bytes, bytes], ...], int] = {}
        self.xattr_ids = bytearray()
        self.dropped_xattrs: set[bytes] = set()
        self.references: array[int] = array("Q")
        self.root = 0

    def write(self, found: Walk) -> None:
        """Encode everything; afterwards the streams hold the inode and directory tables and `root` the root's
        reference.
        """
        self.references = array("Q", bytes(8 * found.inodes))
        listings: dict[int, tuple[int, int, int, list[bytes]]] = {}  # inode number → listing
        for node, children, parent in reversed(found.directories):
            for _, child in children:
                if child.kind == DIR:
                    self._directory(child, node.number, *listings.pop(child.number))
                elif not self.references[child.number - 1]:
                    self._other(child)
            listings[node.number] = self._listing(children)
            if not parent:
                self._directory(node, found.inodes + 1, *listings.pop(node.number))
                self.root = self.references[node.number - 1] - 1

    def export_entries(self) -> bytes:
        """References by inode number."""
        return array("Q", (reference - 1 for reference in self.references)).tobytes()

    def id_entries(self) -> bytes:
        """The ids, by index."""
        if len(self.ids) > 0xFFFF:
            raise EnvbuildError(
                f"{len(self.ids)} different user and group ids; squashfs holds 65535", hint="export with all-root"
            )
        return struct.pack(f"<{len(self.ids)}I", *self.ids)

    # inodes
    def _common(self, node: Node) -> tuple[int, int, int, int, int]:
        """mode, uid index, gid index, mtime, number."""
        if node.pack is None:
            uid = gid = 0
            mtime = self.epoch
        else:
            columns = node.pack.index.columns
            uid, gid, mtime = columns["uids"][node.row], columns["gids"][node.row], columns["mtimes"][node.row]
        if self.all_root:
            uid = gid = 0
        ids = self.ids
        uid_index = ids.setdefault(uid, len(ids))
        gid_index = ids.setdefault(gid, len(ids))
        return node.mode, uid_index & 0xFFFF, gid_index & 0xFFFF, min(max(mtime, 0), 0xFFFFFFFF), node.number

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
        if node.kind == FILE:
            self._file(node, pack, common, xattr)
            return
        extended = sq.EXTENDED if xattr != sq.NO_XATTR else 0
        kind = TYPES[node.kind] + extended
        if node.kind == SYMLINK:
            data = sq.INODE_LINK.pack(kind, *common, node.names, len(node.link)) + node.link
        elif node.kind == FIFO:
            data = sq.INODE_IPC.pack(kind, *common, node.names)
        else:
            number = sq.device(columns["majors"][row], columns["minors"][row])
            data = sq.INODE_DEVICE.pack(kind, *common, node.names, number)
        self.inodes.write(data + struct.pack("<I", xattr) if extended else data)

    def _file(self, node: Node, pack: Pack, common: tuple[int, int, int, int, int], xattr: int) -> None:
        columns, row, number = pack.index.columns, node.row, self.places[id(pack)]
        size, sparse = columns["sizes"][row], columns["sparse"][row]
        start = self.plan.starts[number].get(row, 0)  # without stored blocks it means nothing and is 0
        fragment, offset = columns["fragments"][row], 0
        if fragment != NONE:
            fragment, offset = self.plan.tail(number, fragment, columns["offsets"][row])
        words = pack.index.words(row).tobytes() if size >= pack.index.block else b""
        if node.names == 1 and size <= 0xFFFFFFFF and start <= 0xFFFFFFFF and not sparse and xattr == sq.NO_XATTR:
            self.inodes.write(sq.INODE_FILE.pack(sq.REGULAR, *common, start, fragment, offset, size) + words)
            return
        sparse = min(sparse, size - 1) if sparse else 0  # as mksquashfs: a kernel computes st_blocks from it
        kind = sq.REGULAR + sq.EXTENDED
        self.inodes.write(
            sq.INODE_FILE_X.pack(kind, *common, start, size, sparse, node.names, fragment, offset, xattr) + words
        )

    # listings
    def _listing(self, children: list[tuple[bytes, Node]]) -> tuple[int, int, int, list[bytes]]:
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

        for name, child in children:
            reference = self.references[child.number - 1] - 1
            new_piece, offset = reference >> 16, reference & 0xFFFF
            entry_size = sq.DIR_ENTRY.size + len(name)
            passes = length + (run_length or sq.DIR_HEADER.size) + entry_size - indexed > sq.PIECE
            if (
                not run
                or passes
                or new_piece != piece
                or len(run) == HEADER_ENTRIES
                or not -0x8000 <= child.number - base <= 0x7FFF
            ):
                flush()
                # a fresh header may itself be what no longer fits
                if length + sq.DIR_HEADER.size + entry_size - indexed > sq.PIECE:
                    indexed, due = length, name
                piece, base, run_length = new_piece, child.number, sq.DIR_HEADER.size
            run.append(sq.DIR_ENTRY.pack(offset, child.number - base, TYPES[child.kind], len(name) - 1) + name)
            run_length += entry_size
        flush()
        return start_piece, start_offset, length, index

    # extended attributes
    def _xattr(self, node: Node) -> int:
        """Number of the node's set of attributes."""
        if self.all_root or node.pack is None:
            return sq.NO_XATTR
        index = node.pack.index
        number = index.columns["xattrs"][node.row]
        if not number:
            return sq.NO_XATTR
        pairs = index.xattr_sets[number]
        known = tuple((name, value) for name, value in pairs if name[: name.find(b".") + 1] in PREFIXES)
        self.dropped_xattrs.update(name for name, _ in set(pairs) - set(known))
        if not known:
            return sq.NO_XATTR
        place = self.xattr_numbers.get(known)
        if place is None:
            place = self.xattr_numbers[known] = len(self.xattr_numbers)
            self._write_xattrs(dict(known))
        return place

    def _write_xattrs(self, pairs: Mapping[bytes, bytes]) -> None:
        piece, offset = self.xattrs.position
        size = 0
        for name, value in pairs.items():
            dot = name.index(b".") + 1
            short = name[dot:]
            data = struct.pack("<HH", PREFIXES[name[:dot]], len(short)) + short + struct.pack("<I", len(value)) + value
            self.xattrs.write(data)
            size += len(name) + 1 + len(value)  # as mksquashfs: what listing and reading them takes
        self.xattr_ids += struct.pack("<QII", piece << 16 | offset, len(pairs), size)
