"""Owners and modes of files whose content this process obeys: who else could have written them.

A file is the caller's if it belongs to the caller or to root, and no other user may write it. A group that the caller
is in counts as the caller, because many users share their files so; for root no group does. Under sudo, the user who
typed the command is the caller too, as for git (safe.directory of git-config(1)).
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

UID_MAP = Path("/proc/self/uid_map")


class Intrusion(NamedTuple):
    """A path that others than the caller own or may write: `reason` as the end of a sentence; `own`: it belongs to the
    caller, who can change its mode."""

    path: Path
    reason: str
    own: bool


def find_intrusion(path: str, users: frozenset[int]) -> Intrusion | None:
    """Return how others than `users` (`own_users`) can change the file or folder at `path`; None if they cannot, and
    for one that does not exist."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path for each of many files takes longer than the call
    except OSError:
        return None
    uid, own = status.st_uid, status.st_uid in users
    if own and not status.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
        return None
    if not own:
        reason = f"belongs to {user_name(uid)}"
    elif status.st_mode & stat.S_IWOTH:
        reason = "can be written by every user"
    elif status.st_mode & stat.S_IWGRP and status.st_gid not in own_groups():
        reason = f"can be written by the group {group_name(status.st_gid)}"
    else:
        return None
    who = "" if not own else f"owner {user_name(uid)}, "
    return Intrusion(
        Path(path), f"{reason} ({who}mode {stat.S_IMODE(status.st_mode):04o})", own and uid == os.geteuid()
    )


def is_replaceable(folder: Path) -> bool:
    """Return whether every user can rename what others have in `folder`."""
    try:
        mode = folder.stat().st_mode
    except OSError:
        return False
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def own_users() -> frozenset[int]:
    """Return the users whose files this process obeys."""
    user = os.geteuid()
    return frozenset((0, user, *(() if user else _sudo("SUDO_UID"))))


def own_groups() -> frozenset[int]:
    """Return the groups whose members may write what this process obeys."""
    if os.geteuid():
        return frozenset((os.getegid(), *os.getgroups()))
    # The root of a user namespace (buildah unshare) is a user, whose group has the number 0 there.
    return frozenset((*_sudo("SUDO_GID"), *((os.getegid(),) if in_user_namespace() else ())))


def user_name(uid: int) -> str:
    """Return the name of a user, or its number."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"the user {uid}"


def group_name(gid: int) -> str:
    """Return the name of a group, or its number."""
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _sudo(variable: str) -> tuple[int, ...]:
    value = os.environ.get(variable, "")
    return (int(value),) if value.isascii() and value.isdigit() else ()


def in_user_namespace() -> bool:
    """Return whether the users of this process are not those of the machine (user_namespaces(7))."""
    try:
        return UID_MAP.read_text().split() != ["0", "0", "4294967295"]
    except OSError:
        return False
