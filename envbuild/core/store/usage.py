"""Usage of the store: the bytes on disk of each kind of content."""

from __future__ import annotations

import stat
from pathlib import Path

from envbuild.core.engines import CACHES as ENGINE_CACHES
from envbuild.core.store.store import Store

KINDS = (
    *("blobs", "layers", "packs", "artifacts", "logs", "control", "partial", "apt", "uv", "git", "ccache", "resolved"),
    *(*ENGINE_CACHES, "tmp"),
)


def usage(store: Store) -> dict[str, int]:
    """Return kind of content → bytes on disk, without what a user namespace owns and hides from this user."""
    return {kind: sum(size_of(place / kind) for place in {store.root, store.own}) for kind in KINDS}


def size_of(path: Path) -> int:
    """Return the bytes on disk below `path`; hard links count once, and what cannot be read does not."""
    seen: set[tuple[int, int]] = set()
    total = 0
    todo = [path]
    while todo:
        folder = todo.pop()
        try:
            entries = list(folder.iterdir())
        except OSError:
            continue
        for entry in entries:
            try:
                found = entry.lstat()
            except OSError:  # a path that is too long, or it was removed meanwhile
                continue
            if (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * 512
            if stat.S_ISDIR(found.st_mode):
                todo.append(entry)
    return total
