"""The mark of a store's folder: commands remove entries of a store by their place, so a folder with other content never
becomes one."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Container
from pathlib import Path

from envbuild.core.errors import EngineError
from envbuild.core.shell import shell_word

MARK = "envbuild-store"
SHARED = "shared-with-a-group"  # the store is one of a group, or was
TRIES = 100
TEXT = b"This folder is a store of envbuild, which removes files in it: keep nothing else here.\n"
ALWAYS = ("blobs", "units", "packs")  # folders of every store, also of one from before there was a mark
# Not content: what mkfs and file servers make, and the cache of facts, which shares the default folder
# (envbuild.matrix.facts.cache) and may be there first.
BESIDE = frozenset(("lost+found", ".snapshot", ".snapshots", "matrix"))


def mark_shared(root: Path) -> None:
    """Mark a store of this user as one that a group shares, for good: no other user removes the mark from its folder,
    which is sticky. Raises OSError."""
    path = root / SHARED
    for _ in range(TRIES):
        with contextlib.suppress(FileNotFoundError):
            if path.lstat().st_uid == os.geteuid():
                return
            path.rename(root / f".{SHARED}.{os.urandom(4).hex()}")  # of a member, who could remove it
        with contextlib.suppress(FileExistsError):  # a member made another one at this moment
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444))
    raise FileExistsError(errno.EEXIST, "another user makes it again and again", str(path))


def is_store_of(root: Path, users: Container[int]) -> bool:
    """Return whether one of `users` made the folder `root` a store."""
    with contextlib.suppress(FileNotFoundError):
        return (root / MARK).lstat().st_uid in users
    try:
        return all((root / name).lstat().st_uid in users for name in ALWAYS)
    except FileNotFoundError:
        return False


def mark_store(root: Path) -> None:
    """Mark the folder `root` as a store, if it is new or empty, or has the folders of a store.

    Raises EngineError for any other folder, before anything in it is changed; OSError.
    """
    # One look: another process may make the store at this moment, and the mark is its first entry.
    names = {path.name for path in root.iterdir()}
    if MARK in names:
        return
    if names - BESIDE and not all((root / name).is_dir() for name in ALWAYS):
        raise EngineError(
            f"the folder {root} is not a store: it has other content, which commands that clean the store would remove",
            hint="set ENVBUILD_STORE to a new or empty folder, for example: "
            f"export ENVBUILD_STORE={shell_word(root / 'envbuild')}",
        )
    with contextlib.suppress(FileExistsError):  # another process made it
        file = os.open(root / MARK, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            os.write(file, TEXT)
        finally:
            os.close(file)
