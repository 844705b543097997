"""Trust in a cache that is a folder: who else than the caller decides what is in it.

As for a project (`envbuild.spec.trust`), but for groups: a folder that a group of the caller may write may belong to
any member of that group, and for root its own groups count, too.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from envbuild.core.ownership import Intrusion, find_intrusion, find_renamers, member_groups, own_groups, own_users
from envbuild.core.shell import shell_word
from envbuild.spec.trust import drop_trusted

UNITS = "units"  # beside blobs/ of a layout: the manifest of each unit, by its key
BLOBS = "blobs/sha256"


def find_intruder(folder: Path) -> tuple[str, str] | None:
    """Return why others than the caller decide what is in a cache, and a hint; None if they do not, or if there is no
    such folder."""
    found = list(_find_intrusions(folder))
    if not found or not (found := drop_trusted(found, folder)):
        return None
    item = found[0]
    trust = f"if you trust it, in your site.yaml:  trust: [{folder}]"
    if item.own and not item.path.stat().st_mode & stat.S_ISVTX:
        who = "o" if item.path.stat().st_mode & stat.S_IWOTH else "g"
        return f"{item.path} {item.reason}", f"chmod {who}-w {shell_word(item.path)}"
    return f"{item.path} {item.reason}", trust


def _find_intrusions(folder: Path) -> Iterator[Intrusion]:
    if not folder.exists():
        return
    groups = own_groups() | member_groups()
    users = own_users() | _group_owner(folder, groups)
    yield from find_renamers(str(folder), users)
    for path in (folder, folder / UNITS, folder / "blobs", folder / BLOBS):
        if path != folder and path.is_symlink():
            yield Intrusion(path, "is a symbolic link", own=False)
        elif found := find_intrusion(str(path), users | _group_owner(path, groups), lambda: groups):
            yield found


def _group_owner(path: Path, groups: frozenset[int]) -> frozenset[int]:
    """Return the owner of a folder that one of `groups` may write, if it is a member: in a sticky folder with the
    setgid bit (inode(7)) strangers can make folders of that group."""
    try:
        status = path.stat()
        if not status.st_mode & stat.S_IWGRP or status.st_gid not in groups:
            return frozenset()
        owner = pwd.getpwuid(status.st_uid)
        member = status.st_gid in os.getgrouplist(owner.pw_name, owner.pw_gid)
    except (OSError, KeyError):
        return frozenset()
    return frozenset((status.st_uid,) if member else ())
