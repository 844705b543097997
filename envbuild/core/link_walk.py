"""The way along a path with symbolic links, as the kernel goes it (path_resolution(7)), for any form of a tree.

A tree may come from an untrusted source: its root is the root of every path in it, ``..`` does not leave it, and after
`LINKS` links the path is refused, because links may go in a circle.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

LINKS = 40  # symbolic links on one path; Linux follows as many (MAXSYMLINKS of include/linux/namei.h)
CIRCLE = f"links go in a circle, or a path leads through more than {LINKS} of them"
OPEN_FILE = "it leads through a link of /proc to an open file or a namespace"

N = TypeVar("N")


class LinkCycleError(OSError):
    """A path leads through more than `LINKS` links, or through one that is not followed, as `why` states."""

    def __init__(self, path: str = "", why: str = CIRCLE) -> None:
        super().__init__(errno.ELOOP, why, *([path] if path else []))


class LeavesRootError(OSError):
    """A path leads out of the tree, and must not."""

    def __init__(self, path: str = "") -> None:
        super().__init__(errno.EXDEV, "it leads out of its folder", *([path] if path else []))


@dataclass(frozen=True, slots=True)
class Step(Generic[N]):
    """One entry of a folder: `target` is where a symbolic link leads, None for other entries."""

    node: N
    target: bytes | None = None
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class Place(Generic[N]):
    """The end of a path. `nodes`: from the root to it; `names`: of the nodes below the root, so that they are the path
    without links; `links`: how many were followed; `missing`: the last name, if its folder lacks it."""

    nodes: tuple[N, ...]
    names: tuple[bytes, ...] = ()
    links: int = 0
    missing: bytes = b""

    @property
    def node(self) -> N:
        """The last node: of a missing name the folder that lacks it."""
        return self.nodes[-1]

    @property
    def path(self) -> bytes:
        """The path of `node`, relative to the root, through no link."""
        return b"/".join(self.names)


def walk(
    start: Place[N],
    path: bytes,
    enter: Callable[[N, bytes, bool], Step[N] | None],
    *,
    follow: bool = True,
    beneath: bool = False,
) -> Place[N] | None:
    """Return the place that `path` leads to from `start`; None where a folder on the way is missing or not a folder.

    enter: return the entry of a folder by its name, None if there is none; the flag is set for the last part of a path.
    follow: follow a link that is the last part, too.
    beneath: refuse what would leave the tree if its root were not the root: absolute links, and ``..`` in the root.

    Raises LinkCycleError, LeavesRootError.
    """
    nodes, names, links = [*start.nodes], [*start.names], start.links
    if path.startswith(b"/"):
        del nodes[1:], names[:]
    left = path.split(b"/")[::-1]
    while left:
        name = left.pop()
        if name in (b"", b"."):
            continue
        if name == b"..":
            if names:
                nodes.pop()
                names.pop()
            elif beneath:
                raise LeavesRootError(os.fsdecode(path))
            continue
        found = enter(nodes[-1], name, not left)
        if found is None:
            return None if left else Place((*nodes,), (*names,), links, name)
        target = found.target
        if target is not None and (left or follow):
            links += 1
            if links > LINKS:
                raise LinkCycleError(os.fsdecode(path))
            if not target:
                return None  # as Linux takes an empty link
            if target.startswith(b"/"):
                if beneath:
                    raise LeavesRootError(os.fsdecode(path))
                del nodes[1:], names[:]
            left += target.split(b"/")[::-1]
            continue
        if left and not found.is_folder:
            return None
        nodes.append(found.node)
        names.append(name)
    return Place((*nodes,), (*names,), links)
