"""The merge of layers into one tree by the rules of the OCI image spec (layer.md, "Applying Changesets").

Per layer, lowest first: its whiteouts, which concern lower layers only; then its members in their order. A directory on
a directory keeps the children and takes the new metadata, any other pairing replaces. A hard link is another name of
what its target is when its turn comes: what replaces the target later in the layer does not change it. Only a link
whose target is not there yet waits for the end of the layer (extractors refuse such a layer).

Where a parent of a path is a symlink in a lower layer, it is followed inside the tree, as umoci, containerd and an
extraction in a chroot do: with ``lib -> usr/lib`` below, an entry ``lib/x`` becomes ``usr/lib/x``. (Docker's overlay2
replaces ``/lib`` by a directory, which breaks every merged-usr system.) An entry for the symlink's own path replaces
it. ``..`` never leaves the tree."""

from __future__ import annotations

import os
from collections.abc import Sequence

from envbuild.core.errors import EnvbuildError, InputError
from envbuild.core.link_walk import CIRCLE, LINKS, LinkCycleError, Place, Step, walk
from envbuild.oci.tar import name_count
from envbuild.oci.tar.member import AUFS, CAPABILITY, OPAQUE, WHITEOUT, Rights, has_other_rights
from envbuild.squashfs.pack.check_member import check_path
from envbuild.squashfs.pack.file import Pack
from envbuild.squashfs.pack.index import DIR, HARDLINK, SYMLINK

MAX_FOLLOWED = (
    20_000_000  # parts of targets of symlinks that are followed in all: a second of work; real images have few
)
# Parts of paths of folders that are not found in the cache: half a minute of work. 3 MB of hard links to a file below
# 1,900 folders took 8 minutes.
MAX_WALKED = 40_000_000
HINT = "use another image, or ask its maintainer to push it again"

NOTHING: dict[bytes, Node] = {}  # children of every node that is not a directory


class Node:
    """A file of the tree: row `row` of `pack`, or a directory that no layer names (`pack` None: mode 0755, 0:0, the
    image's time).

    `mode` is the mode in the image; `names` and `number` (link count, inode number) are filled in by the writer.
    """

    __slots__ = ("children", "kind", "mode", "names", "number", "pack", "row")

    def __init__(self, kind: int, pack: Pack | None, row: int, mode: int = 0o755) -> None:
        self.kind, self.pack, self.row, self.mode = kind, pack, row, mode
        self.children: dict[bytes, Node] = {} if kind == DIR else NOTHING
        self.names = self.number = 0

    @property
    def link(self) -> bytes:
        """Target of a symlink."""
        return self.pack.index.links[self.row] if self.pack else b""


class MergedTree:
    """The merged layers; `apply` adds one more on top."""

    def __init__(self) -> None:
        self.root = Node(DIR, None, 0)
        self.layers = 0  # that were applied
        self.parents: dict[bytes, Node] = {}  # directories found before: most entries share theirs with the last one
        self.followed = self.walked = 0
        self.members = self.implied = 0  # of all layers; folders that only paths of members name

    def apply(self, pack: Pack) -> None:
        """Put a layer on top. Raises EnvbuildError for paths that leave the tree, InputError for a layer that
        makes no sense: hard links to nothing, whiteouts of nothing, cycles of symlinks."""
        index = pack.index
        paths, kinds, modes = index.paths, index.kinds, index.columns["modes"]
        whiteouts = []
        for path in paths:
            check_path(path)
            if WHITEOUT in path and is_whiteout(path):
                whiteouts.append(path)
        hidden = frozenset(whiteouts)
        if whiteouts:
            explicit = {path for path, kind in zip(paths, kinds, strict=True) if kind == DIR} - hidden
            for path in whiteouts:
                self._remove(path, explicit)
        waiting: dict[bytes, int] = {}
        parents = self.parents
        for row, path in enumerate(paths):
            if hidden and path in hidden:
                continue
            kind = kinds[row]
            if waiting:
                waiting.pop(path, None)  # of several entries for a path the last one counts
            if kind == HARDLINK:
                node = self._target(index.links[row])
                if node is None or node.kind == DIR:
                    waiting[path] = row
                else:
                    self._name(path, node, pack, row)
                continue
            above, _, name = path.rpartition(b"/")
            parent = parents.get(above)
            if parent is None or name in parent.children or not path:
                self._add(pack, row)
            else:  # nearly every member
                parent.children[name] = Node(kind, pack, row, modes[row])
        self._link(pack, waiting)
        self.layers += 1
        self.members += len(paths)

    def lookup(self, path: bytes, follow: bool = True) -> Node | None:
        """Return the node at `path` (bytes, absolute or relative to the root), symlinks followed inside the tree;
        None when there is none, or the symlinks go in a circle.
        """

        def enter(folder: Node, name: bytes, last: bool) -> Step[Node] | None:
            node = folder.children.get(name)
            if node is None:
                return None
            if node.kind == SYMLINK and not (last and not follow):
                self._count(node.link)
                return Step(node, node.link)
            return Step(node, is_folder=node.kind == DIR)

        self._count_walk(path)
        try:
            place = walk(Place((self.root,)), path, enter)
        except LinkCycleError:
            return None
        return place.node if place and not place.missing else None

    def _target(self, path: bytes) -> Node | None:
        """Return what a hard link names, as `lookup` does that does not follow the last part: most are in a folder that
        was found before."""
        above, _, name = path.rpartition(b"/")
        if name in (b"", b".", b".."):
            return self.lookup(path, follow=False)
        folder = self.parents.get(above) or self.lookup(above)
        if folder is None or folder.kind != DIR:
            return None
        self.parents[above] = folder
        return folder.children.get(name)

    def _count_walk(self, path: bytes) -> None:
        """Count the parts of a path that is walked from the root. Raises InputError when it is one too many."""
        self.walked += path.count(b"/") + 1
        if self.walked > MAX_WALKED:
            raise InputError("its paths lead through too many folders", HINT)

    def _count(self, target: bytes) -> list[bytes]:
        """Return the parts of the target of a symlink that is followed. Raises InputError when it is one too many."""
        parts = target.split(b"/")
        self.followed += len(parts)
        if self.followed > MAX_FOLLOWED:
            raise InputError("its paths follow too many symlinks", HINT)
        return parts

    def _directory(self, path: bytes, create: bool, explicit: set[bytes] | None = None) -> Node | None:
        """Return the directory at `path`, made where it is missing when `create`. A path through a symlink that the
        layer itself replaces (its path is in `explicit`) is not found.
        """
        self._count_walk(path)
        pending = path.split(b"/")[::-1]
        trail, links, walked = [self.root], 0, b""
        while pending:
            name = pending.pop()
            if name in (b"", b"."):
                continue
            if name == b"..":
                if len(trail) > 1:
                    trail.pop()
                continue
            if not links:
                walked = walked + b"/" + name if walked else name
            child = trail[-1].children.get(name)
            if child is not None and child.kind == SYMLINK:
                links += 1
                if links > LINKS or (explicit and walked in explicit):
                    if not create:
                        return None
                    raise InputError(f"{os.fsdecode(path)!r} cannot be reached: {CIRCLE}", HINT)
                if child.link.startswith(b"/"):
                    del trail[1:]
                pending.extend(self._count(child.link)[::-1])
                continue
            if child is None or child.kind != DIR:
                if not create:
                    return None
                self._count_folder()
                child = Node(DIR, None, 0)
                trail[-1].children[name] = child
            trail.append(child)
        return trail[-1]

    def _count_folder(self) -> None:
        """Count a folder that no layer describes. Raises InputError for an image with too many entries."""
        self.implied += 1
        if self.members + self.implied > name_count.MAX_ENTRIES:
            raise InputError(
                f"its paths lead through too many folders: the limit of entries is {name_count.MAX_ENTRIES}", HINT
            )

    def _add(self, pack: Pack, row: int) -> None:
        path, kind = pack.index.paths[row], pack.index.kinds[row]
        if not path:
            node = self.root
            node.pack, node.row, node.mode = pack, row, pack.index.columns["modes"][row]
            return
        parent, name = self._parent(path)
        old = parent.children.get(name)
        if old is not None and old.kind == DIR and kind == DIR:
            old.pack, old.row, old.mode = pack, row, pack.index.columns["modes"][row]
        else:
            self._put(parent, name, Node(kind, pack, row, pack.index.columns["modes"][row]))

    def _parent(self, path: bytes) -> tuple[Node, bytes]:
        """Return the directory that holds `path`, and the last component."""
        above, _, name = path.rpartition(b"/")
        parent = self.parents.get(above)
        if parent is None:
            parent = self._directory(above, create=True)
            assert parent is not None
            self.parents[above] = parent
        return parent, name

    def _put(self, parent: Node, name: bytes, node: Node | None) -> None:
        """Set or remove a child; the cache of what was found through an old directory or symlink is cleared."""
        old = parent.children.pop(name, None)
        if old is not None and old.kind in (DIR, SYMLINK):
            self.parents.clear()
        if node is not None:
            parent.children[name] = node

    def _remove(self, path: bytes, explicit: set[bytes]) -> None:
        """Apply one whiteout to the lower layers."""
        above, _, name = path.rpartition(b"/")
        parent = self._directory(above, create=False, explicit=explicit)
        if name == OPAQUE:
            if parent is not None:
                parent.children.clear()
                self.parents.clear()
        elif AUFS not in path:
            hidden = name.removeprefix(WHITEOUT)
            if not name.startswith(WHITEOUT) or hidden in (b"", b".", b".."):
                raise InputError(f"a layer holds a whiteout that names nothing: {os.fsdecode(path)!r}", HINT)
            if parent is not None:
                self._put(parent, hidden, None)

    def _link(self, pack: Pack, waiting: dict[bytes, int]) -> None:
        """Resolve the hard links of a layer whose targets came after them; links to links work."""
        known: dict[bytes, Node] = {}
        for path in waiting:
            chain, target = {path: None}, pack.index.links[waiting[path]]  # in their order
            while target in waiting and target not in known and target not in chain:
                chain[target] = None
                target = pack.index.links[waiting[target]]
            node = known.get(target) or self._target(target)
            if node is None or node.kind == DIR or target in chain:
                what = "a directory" if node is not None and node.kind == DIR else "nothing"
                raise InputError(
                    f"the hard link {os.fsdecode(path)!r} of a layer names {what}: {os.fsdecode(target)!r}", HINT
                )
            known.update(dict.fromkeys(chain, node))
            self._name(path, node, pack, waiting[path])

    def _name(self, path: bytes, node: Node, pack: Pack, row: int) -> None:
        """Give a file one more name, which is row `row` of a pack. Raises InputError where that states rights that the
        file does not have."""
        if has_other_rights(rights(pack, row), rights(node.pack or pack, node.row)):
            raise InputError(f"{os.fsdecode(path)!r} states other rights than the file whose other name it is", HINT)
        parent, name = self._parent(path)
        if parent.children.get(name) is not node:
            self._put(parent, name, node)


def rights(pack: Pack, row: int) -> Rights:
    """Return the rights that a member has as a program."""
    index = pack.index
    mode, uid, gid, xattrs = (index.columns[name][row] for name in ("modes", "uids", "gids", "xattrs"))
    return Rights(mode, uid, gid, dict(index.xattr_sets[xattrs]).get(CAPABILITY))


def is_whiteout(path: bytes) -> bool:
    """Return whether a path that holds ``.wh.`` is a marker (or is in one of aufs' own directories) and not
    content."""
    return path.rpartition(b"/")[2].startswith(WHITEOUT) or any(part.startswith(AUFS) for part in path.split(b"/"))


def merge_packs(packs: Sequence[Pack], begun: MergedTree | None = None) -> MergedTree:
    """Return the tree of `packs`, bottom first; `begun` is that of the lowest of them, which becomes it. Raises what
    `MergedTree.apply` does, and names the layer."""
    tree = begun or MergedTree()
    for number, pack in enumerate(packs[tree.layers :], tree.layers + 1):
        try:
            tree.apply(pack)
        except EnvbuildError as error:
            raise error.at(f"layer {number} of {len(packs)}") from None
    return tree
