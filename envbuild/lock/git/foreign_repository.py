"""Repositories in folders that another user may write. git follows what is in them, with the rights of the caller: a
link, or a file that names other objects, could lead to a private repository, whose files would get into the store."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from envbuild.core.file_status import file_status
from envbuild.core.judged_links import check_links
from envbuild.core.ownership import find_intrusion, own_users

# Files that make git read elsewhere (gitrepository-layout(5)), as paths in a git directory.
LEADING = ("commondir", "gitdir", "objects/info/alternates")
SETTINGS = ("config", "config.worktree")
# [include], [includeIf "…"] of git-config(1); a partial copy, for which git before 2.45 fetches what is missing
INCLUDE = re.compile(rb"\[\s*include|promisor|partialclone", re.IGNORECASE)
LARGEST = 1 << 20  # bytes of a file of settings that is read


def find_way_out(folder: Path, named: Path) -> Path | None:
    """Return a link of another user on the way to the repository `named` or in its git directory `folder`, or a file of
    theirs that names another repository or a file of settings; None if there is none.

    A link on the way may lead to a repository of its own owner. What such a user changes afterwards is not seen:
    docs/security.md.
    """
    users = own_users()
    try:
        for way in (named, folder):
            check_links(way, users)
        return next((path for path in _entries(folder, named) if _is_way_out(path, folder, users)), None)
    except OSError as error:
        return Path(os.fsdecode(error.filename or folder))


def _is_way_out(path: Path, folder: Path, users: frozenset[int]) -> bool:
    try:
        status, owner = (found := file_status(path, follow=False)).stat, found.owner
    except OSError:
        return False
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):  # a link, or a FIFO that git would wait for
        return owner not in users  # a daemon of git makes a socket in a checkout of the caller
    return _leads(path, folder) and any(find_intrusion(str(item), users) for item in (path, path.parent))


def _leads(path: Path, folder: Path) -> bool:
    if path not in [folder / name for name in SETTINGS]:
        return is_leading(path, folder)
    with path.open("rb") as file:
        text = file.read(LARGEST + 1)
    return len(text) > LARGEST or bool(INCLUDE.search(text))


def is_leading(path: Path, folder: Path) -> bool:
    """Return whether git, or `find_git_directory`, reads another folder because of a file."""
    return path in [folder / name for name in LEADING] or (path.name == ".git" and path.is_file())


def _entries(folder: Path, named: Path) -> Iterator[Path]:
    """Yield every entry to judge. Raises OSError for a folder that cannot be listed: git needs only a name in it."""

    def refuse(error: OSError) -> None:
        raise error

    yield from (folder / name for name in LEADING)
    yield named / ".git"
    for inner, folders, files in os.walk(folder, onerror=refuse):
        for name in (*folders, *files):
            yield Path(inner, name)
