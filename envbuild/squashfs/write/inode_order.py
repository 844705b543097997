"""The order of an image's inodes: the root is 1, then directory by directory (pre-order, names in byte order) all
children of one in a row, so that a listing needs few headers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from envbuild.squashfs.pack.file import Pack
from envbuild.squashfs.pack.index import DIR
from envbuild.squashfs.write.merge import MergedTree, Node

Directory = tuple[Node, list[tuple[bytes, Node]], int]  # (node, sorted children, parent's number)


@dataclass(slots=True)
class InodeOrder:
    """A tree in the order of its inode numbers: directories in pre-order, number of inodes, live rows per pack (but
    for those of directories and other names of files).
    """

    directories: list[Directory] = field(default_factory=list)
    inodes: int = 1
    live: list[list[int]] = field(default_factory=list)


def number_inodes(tree: MergedTree, packs: Sequence[Pack]) -> InodeOrder:
    """Number the nodes of `tree`, count their names, and find the live rows of `packs`."""
    places = {id(pack): number for number, pack in enumerate(packs)}
    result = InodeOrder(live=[[] for _ in packs])
    tree.root.number = 1
    stack: list[tuple[Node, int]] = [(tree.root, 0)]
    while stack:
        node, parent = stack.pop()
        inside = node.children
        children = [(name, inside[name]) for name in sorted(inside)]
        result.directories.append((node, children, parent))
        node.names = 2
        below = []
        for _, child in children:
            if not child.number:
                result.inodes += 1
                child.number, child.names = result.inodes, 0
                if child.kind != DIR and child.pack is not None:
                    result.live[places[id(child.pack)]].append(child.row)
            if child.kind == DIR:
                node.names += 1
                below.append((child, node.number))
            else:
                child.names += 1
        stack.extend(reversed(below))
    return result
