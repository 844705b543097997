"""Owners and modes of files whose content this process obeys: who else could have written them.

A file is the caller's if it belongs to the caller or to root, and no other user may write it. A group that the caller
is in counts as the caller, because many users share their files so; for root no group does. Under sudo, the user who
typed the command is the caller too, as for git (safe.directory of git-config(1)), with a group of that user alone.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from envbuild.core.access_lists import named_writers
from envbuild.core.file_status import FileStatus, file_status
from envbuild.core.link_walk import Place, Step, walk
from envbuild.core.unmapped_root import is_folder_of_root, is_unmapped
from envbuild.core.user_numbers import UNKNOWN, UNMAPPED, in_user_namespace, real_group, real_user

NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # they state nothing about the file


Groups = Callable[[], frozenset[int]]  # computed where a group may write: that can take a search of all users


class Intrusion(NamedTuple):
    """A path that others than the caller own or may write: `reason` as the end of a sentence; `own`: it belongs to the
    caller, who can change its mode."""

    path: Path
    reason: str
    own: bool


def find_intrusion(path: str, users: frozenset[int], groups: Groups | None = None) -> Intrusion | None:
    """Return how others than `users` (`own_users`) and `groups` (None: `own_groups`) can change the file or folder at
    `path`; None if they cannot, and for one that does not exist."""
    try:
        found = file_status(path)
    except OSError as error:
        if error.errno in NO_DESCRIPTOR:
            raise
        return None
    if foreign := _find_mounter(path, found, users):
        return foreign
    status = found.stat
    uid, own = status.st_uid, status.st_uid in users
    if own and not status.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
        return None
    if not own:
        reason = f"belongs to {user_name(uid)}"
    elif status.st_mode & stat.S_IWOTH:
        reason = "can be written by every user"
    else:
        accepted = own_groups() if groups is None else groups()
        if status.st_gid not in accepted:
            reason = f"can be written by the group {group_name(status.st_gid)}"
        elif other := find_named_writer(path, users, accepted):
            reason = f"can be written by {other}, by its access list"
        else:
            return None
    who = "" if not own else f"owner {user_name(uid)}, "
    return Intrusion(
        Path(path), f"{reason} ({who}mode {stat.S_IMODE(status.st_mode):04o})", own and uid == os.geteuid()
    )


def _find_mounter(path: str, found: FileStatus, users: frozenset[int]) -> Intrusion | None:
    """Return that another user mounted the FUSE file system of a path: its owners and modes are that user's words."""
    if found.mounter is None or found.mounter in users:
        return None
    return Intrusion(Path(path), f"is in a FUSE file system that {user_name(found.mounter)} mounted", False)


def find_named_writer(path: str, users: frozenset[int], groups: frozenset[int]) -> str:
    """Return a user or a group that an access list lets write `path`, and that is not of `users` or `groups`; "" if
    there is none."""
    for writer in named_writers(path):
        if writer.number not in (groups if writer.is_group else users):
            return f"the group {group_name(writer.number)}" if writer.is_group else user_name(writer.number)
    return ""


def find_any_intrusions(path: Path) -> Iterator[Intrusion]:
    """Yield what `find_file_intrusions` does where no member of a group counts as the caller: for a key, which decides
    who may sign, and for a statement of the caller."""
    return find_file_intrusions(path, private_groups)


def find_file_intrusions(path: Path, groups: Groups | None = None) -> Iterator[Intrusion]:
    """Yield every path by which others than the caller and `groups` (None: `own_groups`) can change the file at `path`;
    nothing if there is none."""
    if not os.path.lexists(path):
        return
    folder, users = os.path.realpath(path.parent), own_users()
    yield from find_renamers(str(path.parent), users, groups)
    for place in (folder, f"{folder}/{path.name}"):
        yield from find_at(place, users, groups)


def find_at(path: str, users: frozenset[int], groups: Groups | None = None) -> Iterator[Intrusion]:
    """Yield how others than `users` and `groups` can change the file or folder at `path`; of a link, also its way and
    the folder of what it points at."""
    places = [path]
    if os.path.islink(path):  # noqa: PTH114 - a Path for each of many files takes longer than the call
        yield from find_renamers(path, users, groups)
        try:
            target = os.path.realpath(path)
        except OSError as error:  # a link of another process in /proc
            if error.errno in NO_DESCRIPTOR:
                raise
            yield Intrusion(Path(path), "is a link that leads through one which you may not read", False)
            return
        places = [os.path.dirname(target), target]  # noqa: PTH120
    yield from filter(None, (find_intrusion(place, users, groups) for place in places))


def is_own_file(path: Path) -> bool:
    """Return whether no user but this one and root can have written a file, or given its name to it, as far as its own
    folder shows that. Members of a group are others. True for a file that does not exist."""
    users = own_users()
    return not any(find_intrusion(str(place), users, private_groups) for place in (path.parent, path))


def closed_groups() -> frozenset[int]:
    """Return the groups of which no user but the caller is a member: `private_groups`; under sudo the one of that
    user."""
    return private_groups() if os.geteuid() or in_user_namespace() else own_groups()


def find_renamers(
    path: str, users: frozenset[int], groups: Groups | None = None, *, strict: bool = False
) -> Iterator[Intrusion]:
    """Yield every folder and link on the way to `path`, through all links on it, by which others than `users` and
    `groups` can put something else in the place of what is found there: they own it, or may write a folder without the
    sticky bit (as StrictModes of sshd_config(5)). With that bit the owner of an entry decides. strict: yield also that
    a part of the way is missing or closed: it may be there in the next moment."""

    def enter(folder: bytes, name: bytes, last: bool) -> Step[bytes]:
        found.setdefault(folder, find_renamer(folder, users, groups))
        entry = folder.rstrip(b"/") + b"/" + name
        try:
            target = os.readlink(entry)  # noqa: PTH115 - as in find_at
        except OSError:
            return Step(entry, is_folder=not last)
        status, owner = os.stat(folder), file_status(entry, follow=False).owner  # noqa: PTH116
        if status.st_mode & stat.S_ISVTX and status.st_mode & (stat.S_IWOTH | stat.S_IWGRP) and owner not in users:
            reason = f"belongs to {user_name(owner)}, in a folder that others can write"
            found[entry] = Intrusion(Path(os.fsdecode(entry)), reason, False)
        return Step(entry, target)

    found: dict[bytes, Intrusion | None] = {}
    try:
        whole = walk(Place((b"/",)), os.fsencode(Path(path).absolute()), enter)
    except OSError as error:  # then nothing is read there
        if error.errno in NO_DESCRIPTOR:
            raise
        whole = None
    if strict and not whole:
        yield Intrusion(Path(path), "is missing for a moment", False)
    yield from filter(None, found.values())


def find_renamer(
    folder: bytes, users: frozenset[int], groups: Groups | None = None, *, sticky: bool = True
) -> Intrusion | None:
    """Return how others than `users` and `groups` can rename entries of `folder`, as `find_renamers`; None if they
    cannot. Not `sticky`: how they can make entries, for which that bit is nothing."""
    found = file_status(folder)
    status = found.stat
    if foreign := _find_mounter(os.fsdecode(folder), found, users):
        return foreign
    if is_unmapped(status) and is_folder_of_root(folder, status):
        users |= {status.st_uid}
    if sticky and status.st_uid in users and status.st_mode & stat.S_ISVTX:
        return None
    return find_intrusion(os.fsdecode(folder), users, groups)


def can_others_rename(folder: int) -> bool:
    """Return whether others than the caller can give the entries of an open folder other names: then a name shows
    nothing about who made an entry. Members of a group are others."""
    return bool(find_renamer(f"/proc/self/fd/{folder}".encode(), frozenset((os.geteuid(), 0)), private_groups))


def own_users() -> frozenset[int]:
    """Return the users whose files this process obeys."""
    user = sudo_user()
    return frozenset((0, os.geteuid(), *(() if user is None else (user,))))


def sudo_user() -> int | None:
    """Return the user who called ``sudo``; None if this process is not root's by it."""
    return None if os.geteuid() else next(iter(_sudo("SUDO_UID")), None)


def own_groups() -> frozenset[int]:
    """Return the groups whose members may write what this process obeys."""
    if os.geteuid():
        return member_groups()
    # The root of a user namespace (buildah unshare) is a user, whose group has the number 0 there. Under sudo, code of
    # other members of the user's group would run as root.
    sudo = {group for user in _sudo("SUDO_UID") for group in _sudo("SUDO_GID") if is_private_group(user, group)}
    return frozenset((*sudo, *((os.getegid(),) if in_user_namespace() else ())))


def member_groups() -> frozenset[int]:
    """Return the groups of this process. In a user namespace those without a number there have the number of all such
    groups of the machine, so they are left out."""
    groups = frozenset((os.getegid(), *os.getgroups()))
    return groups - {UNMAPPED} if in_user_namespace() else groups


def private_groups() -> frozenset[int]:
    """Return the caller's group, if the caller is alone in it. Root has none, and in a user namespace only who has the
    same numbers as outside: the user database may be that of a container, or of the machine."""
    user, group = os.geteuid(), os.getegid()
    known = user and (user, group) == (real_user(), real_group()) and is_private_group(user, group)
    return frozenset((group,)) if known else frozenset()


def is_private_group(user: int, group: int) -> bool:
    """Return whether a group is that of one user alone: the first group of the user, with the user's name, as many
    systems make for each user, without members, and the first group of no other user. A directory that does not list
    its users (sssd.conf(5), "enumerate") does not name the latter."""
    import grp
    import pwd

    try:
        known, found = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    name = known.pw_name
    if (found.gr_name, found.gr_gid) != (name, known.pw_gid) or not {*found.gr_mem} <= {name}:
        return False
    return not any(other.pw_gid == group and other.pw_uid != user for other in pwd.getpwall())


def user_name(uid: int) -> str:
    """Return the name of a user, or its number."""
    import pwd

    if uid == UNKNOWN:
        return "an unknown user"
    if uid == UNMAPPED and in_user_namespace():
        return "a user without a number in this user namespace"
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
