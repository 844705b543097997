"""Repositories of the store in which git finds damage: they are removed, so that their commits are fetched again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from envbuild.core.folder_removal import discard_folder
from envbuild.core.store.store import Store
from envbuild.lock.git.received import WHOLE, is_damaged


def drop_damaged(store: Store, folders: Iterable[Path]) -> list[Path]:
    """Remove those of the git directories that are caches of the store and damaged; return them. Another repository is
    only read."""
    dropped = []
    for folder in dict.fromkeys(folders):
        if folder.parent != store.own / "git":
            continue
        with store.lock(f"git-{folder.name.removesuffix(WHOLE)}"):
            if folder.is_dir() and is_damaged(folder):
                discard_folder(folder)
                dropped.append(folder)
    return dropped
