"""A check of all that other programs read of a squashfs file, before one reads it that trusts the file."""

from __future__ import annotations

from collections.abc import Iterator

from envbuild.oci.tar import name_count
from envbuild.squashfs.read.inode import MAX_WORDS, REGULAR, printable_path
from envbuild.squashfs.read.superblock import damaged_image
from envbuild.squashfs.read.tree import Entry, SquashTree


def sound_entries(tree: SquashTree) -> Iterator[tuple[Entry, bool]]:
    """Yield all entries as `SquashTree.walk` does, each after a check of all that other programs read of its inode, and
    whether the inode is a new one. The content of files is not read. Raises VerifyError.

    squashfuse and unsquashfs write and read outside of their memory where a file is not sound (squashfuse 0.1.105: a
    name of more than 256 bytes overwrites its stack)."""
    inodes, sets = set[int](), set[int]()
    words, attributes = min(tree.inode_bytes // 4, MAX_WORDS), name_count.MAX_NAMES
    for entry in tree.walk():
        inode, is_new = entry.inode, entry.inode.reference not in inodes
        inodes.add(inode.reference)
        if is_new and inode.xattr not in sets:
            sets.add(inode.xattr)
            attributes -= sum(len(name) + len(value) for name, value in tree.xattrs(inode).items())
        if is_new and inode.kind == REGULAR:
            content = tree.content(inode)
            words -= len(content.words)
            with tree.sound(printable_path(entry.path)):
                content.check()
        if words < 0 or attributes < 0:  # inodes that overlap would make a small file endless
            raise damaged_image(str(tree.path), f"the inodes up to {printable_path(entry.path)} overlap")
        yield entry, is_new
