"""Links of an image that enroot's scripts follow on the node, outside of the container.

They name files as ``${ENROOT_ROOTFS}/etc/passwd`` (`envbuild.spec.enroot_rules.FOLLOWED`). In such a path an absolute
link, or one with more ``..`` than there are folders above it, leads to files of the node, and the image does not start.
Such links are written relative to their own folder: in the container they lead where they led before.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Iterable, Iterator

from envbuild.core.errors import InputError
from envbuild.core.link_walk import LinkCycleError, Place, Step, walk
from envbuild.export.enroot import Additions
from envbuild.oci.tar.member import Kind, Member
from envbuild.spec.enroot_rules import FOLLOWED, FOLLOWED_TREES, NO_ZONE, ZONE, ZONES
from envbuild.squashfs.pack.index import DIR, SYMLINK
from envbuild.squashfs.write.merge import MergedTree, Node

MOST_LINKS = 20_000  # in a folder that enroot copies; tzdata has some 600
MOST_STEPS = 2_000_000  # of all ways together: some seconds

Location = tuple[Node, tuple[bytes, ...]]  # a node, and its path through no link


def relative_links(tree: MergedTree, volumes: Iterable[str] = ()) -> Additions:
    """Return the links that replace those which would lead out of the image on the node, and a line for each.

    `volumes` of the image: /etc/fstab names them as ``${ENROOT_ROOTFS}/data``.
    """
    extra, messages = [], []
    for path, node in sorted(followed_links(tree, volumes).items(), key=lambda item: item[0]):
        target = inside(node.link, len(path) - 1)
        if target == node.link or node.pack is None:
            continue
        columns = node.pack.index.columns
        uid, gid, mtime = (columns[name][node.row] for name in ("uids", "gids", "mtimes"))
        member = Member(b"/".join(path), Kind.SYMLINK, node.mode, uid=uid, gid=gid, mtime=mtime, link=target)
        extra.append((member, b""))
        name, old, new = (os.fsdecode(part) for part in (member.path, node.link, target))
        messages.append(f"the link /{name} -> {old} is now {new}, because enroot follows it on the node")
    return Additions(tuple(extra), tuple(messages))


def inside(target: bytes, depth: int) -> bytes:
    """Return the target of a link that is `depth` folders below the root, so that it does not leave the root."""
    parts = [part for part in target.split(b"/") if part not in (b"", b".")]
    up = next((at for at, part in enumerate(parts) if part != b".."), len(parts))
    if target.startswith(b"/"):
        return b"/".join([b".."] * depth + parts[up:]) or b"."
    return b"/".join([b".."] * depth + parts[up:]) or b"." if up > depth else target


def followed_links(tree: MergedTree, volumes: Iterable[str]) -> dict[tuple[bytes, ...], Node]:
    """Return the links on the ways of `FOLLOWED` and of volumes, those of `FOLLOWED_TREES`, and those in the root, by
    their paths through no link."""
    found: dict[tuple[bytes, ...], Node] = {}
    steps = 0

    def enter(folder: Location, name: bytes, _last: bool) -> Step[Location] | None:
        nonlocal steps
        steps += 1
        if steps > MOST_STEPS:
            why = f"links that enroot follows on the node lead through more than {MOST_STEPS} folders and links"
            raise InputError(why, hint="remove links from / and /etc/skel of the image")
        node, path = folder[0].children.get(name), (*folder[1], name)
        if node is None:
            return None
        if node.kind == SYMLINK:
            found[path] = node
            return Step((node, path), node.link)
        return Step((node, path), is_folder=node.kind == DIR)

    def follow(path: bytes) -> Location | None:
        with contextlib.suppress(LinkCycleError):
            place = walk(root, path, enter)
            return place.node if place and not place.missing else None
        return None

    root: Place[Location] = Place(((tree.root, ()),))
    for path in ways(tree, volumes):
        follow(path)
    for path in FOLLOWED_TREES:
        left, seen, count = [follow(path)], set[int](), 0
        while left:  # cp -L enters folders that links lead to
            if (top := left.pop()) and top[0].kind == DIR and id(top[0]) not in seen:
                links = [*links_below(*top, seen)]
                count += len(links)
                check_count(path, count)
                left += (follow(link) for link in links if link != NO_ZONE)
    if leads_elsewhere(follow(b"etc")):
        follow(ZONE)
    return found


def leads_elsewhere(etc: Location | None) -> bool:
    """Return whether /etc/localtime is a link to something else than a zone: the hook replaces a link to a zone itself,
    and writes into a folder."""
    node = etc[0].children.get(b"localtime") if etc else None
    target = os.fsdecode(node.link) if node and node.kind == SYMLINK else ZONES
    return not posixpath.normpath(f"/etc/{target}" if target[:1] != "/" else target).startswith(ZONES)


def links_below(folder: Node, path: tuple[bytes, ...], seen: set[int]) -> Iterator[bytes]:
    """Yield the paths of the links in a folder and in those below it, but for folders that were `seen` before."""
    left = [(folder, path)]
    while left:
        top, above = left.pop()
        if id(top) in seen:
            continue
        seen.add(id(top))
        for name, node in sorted(top.children.items()):
            if node.kind == DIR:
                left.append((node, (*above, name)))
            elif node.kind == SYMLINK:
                yield b"/".join((*above, name))


def check_count(path: bytes, count: int) -> None:
    """Raise InputError for more links than any distribution has in a folder that enroot copies."""
    if count > MOST_LINKS:
        raise InputError(
            f"/{os.fsdecode(path)} has more than {MOST_LINKS} links, which enroot follows on the node",
            hint="remove them from the image",
        )


def ways(tree: MergedTree, volumes: Iterable[str]) -> Iterator[bytes]:
    """Yield the paths that the scripts and /etc/fstab name."""
    yield from (os.fsencode(posixpath.normpath(f"/{path}").strip("/")) for path in volumes)
    yield from FOLLOWED
    yield from (name for name, node in tree.root.children.items() if node.kind == SYMLINK)
