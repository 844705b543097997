"""Repositories in folders that another user may write. git follows what is in them, with the rights of the caller: a
link, or a file that names other objects, could lead to a private repository, whose files would get into the store."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from envbuild.core.ownership import find_intrusion, own_users

# Files that make git read elsewhere (gitrepository-layout(5)), as paths in a git directory.
LEADING = ("commondir", "gitdir", "objects/info/alternates")


def find_way_out(folder: Path, place: Path, named: Path) -> Path | None:
    """Return a link of another user on the way from `place`, the folder that the site names, to the repository `named`
    or in its git directory `folder`, or a file of theirs that names another repository; None if there is none.

    What such a user changes afterwards is not seen: docs/security.md.
    """
    users = own_users()
    for path in _entries(folder, place, named):
        try:
            status = path.lstat()
        except OSError:
            continue
        if stat.S_ISLNK(status.st_mode):
            if status.st_uid not in users:
                return path
        elif any(find_intrusion(str(item), users) for item in (path, path.parent)) and is_leading(path, folder):
            return path
    return None


def is_leading(path: Path, folder: Path) -> bool:
    """Return whether git, or `find_git_directory`, reads another folder because of a file."""
    return path in [folder / name for name in LEADING] or (path.name == ".git" and path.is_file())


def _entries(folder: Path, place: Path, named: Path) -> Iterator[Path]:
    way = Path(os.path.normpath(named))
    for above in [*reversed(way.parents), way]:
        if place in (above, *above.parents):
            yield above
            yield above / ".git"
    for inner, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(inner, name)
