"""A store that others wrote in before: what they wrote looks like its owner's, so the owner does not take it over.

Members may write each other's files, so a file that belongs to the owner can have any content, and neither its owner
nor its mode shows that.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from envbuild.core.errors import EngineError
from envbuild.core.ownership import closed_groups, find_intrusion, group_name, own_users
from envbuild.core.shell import shell_word
from envbuild.core.store.mark import SHARED
from envbuild.core.store.permissions import GROUP, OTHERS, OWN, STICKY


def check_former_members(root: Path, folders: Sequence[str], content: Sequence[str]) -> None:
    """Refuse a store that no group shares now if others could write what is in it. Raises EngineError.

    folders: those of a store that a group shares; `content`: those of them with what images are made of.
    """
    if reason := next(_find_traces(root, folders, content), ""):
        path = shell_word(root)
        raise EngineError(
            f"the store {root} was a group's: {reason}, so others wrote in it, and what they wrote looks like yours",
            hint=f"make a new one: rm -r {path}, or set ENVBUILD_STORE; to share it with its group: chmod 3775 {path}",
        )


def _find_traces(root: Path, folders: Sequence[str], content: Sequence[str]) -> Iterator[str]:
    """Yield how a store shows that others could write in it."""
    users, status = own_users(), root.stat()
    is_open = status.st_mode & OTHERS  # as in /tmp: every user can make an entry of such a name
    if os.path.lexists(mark := root / SHARED) and (not is_open or mark.lstat().st_uid in users):
        yield "a group shared it"
    for entry in os.scandir(root):
        if not OWN.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
            continue
        own = entry.stat(follow_symlinks=False).st_uid in users
        if not (status.st_gid in closed_groups() if own else is_open):
            yield f"{entry.name}/ is the folder of a member of a group"  # only the store of a group has them
    if not any(has_entries(root / name) for name in content):
        return
    for path in (root, *map(root.joinpath, folders)):
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        guarded = path == root and found.st_mode & STICKY  # as in /tmp: no other user replaces what is in it
        writable = stat.S_ISDIR(found.st_mode) and found.st_mode & GROUP and not guarded
        if writable and find_intrusion(str(path), users, closed_groups):
            yield f"{path.name}/ is writable for the group {group_name(found.st_gid)}"


def has_entries(folder: Path) -> bool:
    try:
        return stat.S_ISDIR(folder.lstat().st_mode) and any(folder.iterdir())
    except OSError:
        return False
