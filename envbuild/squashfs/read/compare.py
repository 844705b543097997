"""The comparison of two squashfs files: every path, its kind, its metadata and its content."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from envbuild.oci.tar import name_count
from envbuild.squashfs import format as sq
from envbuild.squashfs.read.content_comparison import CHUNK, CachedPairs, ContentComparison
from envbuild.squashfs.read.decompress import CorruptDataError
from envbuild.squashfs.read.inode import DIRECTORY, KINDS, REGULAR, SYMLINK, Inode, printable_path
from envbuild.squashfs.read.superblock import damaged_image
from envbuild.squashfs.read.tree import Entry, SquashTree

TIME = "time"
# The name of a field of an inode → its value as text.
FIELDS: dict[str, Callable[[Inode], str]] = {
    "mode": lambda inode: f"{inode.mode:04o}",
    "owner": lambda inode: f"{inode.uid}:{inode.gid}",
    "device": lambda inode: f"{inode.device >> 8 & 0xFFF}:{inode.device & 0xFF | inode.device >> 12 & 0xFFF00}",
    TIME: lambda inode: str(inode.mtime),
}


@dataclass(frozen=True, slots=True)
class Change:
    """One path that only one image has, or that differs. `fields`: what differs (kind, content, target, mode, owner,
    links, attributes, device, time) → how it was and is; empty for a path that came or went."""

    path: bytes
    before: Inode | None
    after: Inode | None
    fields: dict[str, tuple[str, str]]


def pair_entries(before: SquashTree, after: SquashTree) -> Iterator[tuple[Entry | None, Entry | None]]:
    """Yield entries of both trees side by side, in path order; None where a tree has nothing."""
    olds, news = before.walk(), after.walk()
    old, new = next(olds, None), next(news, None)
    while old or new:
        # the order of `walk`: a slash before every other byte
        left = old.path.replace(b"/", b"\0") if old else b""
        right = new.path.replace(b"/", b"\0") if new else b""
        if old and new and left == right:
            yield old, new
            old, new = next(olds, None), next(news, None)
        elif old and (not new or left < right):
            yield old, None
            old = next(olds, None)
        else:
            yield None, new
            new = next(news, None)


class Comparison:
    """A comparison of the inodes of two trees."""

    def __init__(self, before: SquashTree, after: SquashTree) -> None:
        self.before, self.after = before, after
        self.same = ContentComparison(before.blocks, after.blocks)
        self._known = CachedPairs()  # pairs of inodes that have several names, or long contents
        # Numbers of inodes: old → new, new → old. How many names an inode states may be wrong, so all are here.
        # Files of more entries are refused when they are read.
        counts = (min(tree.superblock.inodes, name_count.MAX_ENTRIES) + 1 for tree in (before, after))
        self._news, self._olds = (array("I", bytes(4 * count)) for count in counts)

    def fields(self, old: Entry, new: Entry) -> dict[str, tuple[str, str]]:
        """Return the differences at one path."""
        one, other = old.inode, new.inode
        found: dict[str, tuple[str, str]] = {}
        if one.kind != other.kind:
            return {"kind": (KINDS[one.kind], KINDS[other.kind])}
        if one.kind == REGULAR and (one.size != other.size or not self._content(old, new)):
            found["content"] = (f"{one.size} bytes", f"{other.size} bytes")
        if one.kind == SYMLINK and one.target != other.target:
            found["target"] = (printable_path(one.target), printable_path(other.target))
        for name, format_field in FIELDS.items():
            was, now = format_field(one), format_field(other)
            if was != now:
                found[name] = (was, now)
        if one.kind != DIRECTORY:
            if one.links != other.links:
                found["links"] = (str(one.links), str(other.links))
            elif not self._same_names(one.number, other.number):
                found["links"] = (str(one.links), f"{other.links}, with other names")
        if one.xattr != sq.NO_XATTR or other.xattr != sq.NO_XATTR:
            was_set, now_set = self.before.xattrs(one), self.after.xattrs(other)
            self._affordable(old)
            if was_set != now_set:
                found["attributes"] = (attribute_names(was_set), attribute_names(now_set))
        return found

    def _same_names(self, old: int, new: int) -> bool:
        """Return whether the names of two inodes so far are each other's."""
        same = self._news[old] in (0, new) and self._olds[new] in (0, old)
        if same:
            self._news[old], self._olds[new] = new, old
        return same

    def _affordable(self, entry: Entry) -> None:
        try:
            self.same.check()
        except CorruptDataError as error:
            which = f"{self.before.path} or {self.after.path}"
            raise damaged_image(which, f"{printable_path(entry.path)}: {error}") from error

    def _content(self, old: Entry, new: Entry) -> bool:
        one, other = old.inode, new.inode
        if not one.size and one.fragment == other.fragment == sq.NO_FRAGMENT:
            return True
        key = (one.reference, other.reference)
        known = self._known.get(key)
        if known is None:
            spent = self.same.spent
            before, after = self.before.content(one), self.after.content(other)
            try:
                before.claim()
                after.claim()
                known = self.same(before, after)
            except CorruptDataError as error:
                which = f"{self.before.path} or {self.after.path}"
                raise damaged_image(which, f"{printable_path(old.path)}: {error}") from error
            # the number of names is what the inode states, which may be wrong
            if one.links > 1 or self.same.spent - spent > CHUNK:
                self._known[key] = known
        return known


def attribute_names(attributes: dict[bytes, bytes]) -> str:
    """Return the names of attributes as text."""
    return ", ".join(printable_path(name) for name in sorted(attributes)) or "none"
