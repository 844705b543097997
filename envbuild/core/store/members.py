"""The owners of a store's folders: which other users could change what a command of this user does in it.

Files of a store are found by name. A user who may replace a folder of it by a link makes the commands of other users
write, change modes and remove files elsewhere. So no user but the store's owner and root may replace a folder on the
way to a file: a store is writable by its owner alone, or by a group. In the store of a group the shared folders belong
to the store's owner or to root, and a folder that has such a folder in it is sticky (inode(7)): only the owner of a
name in it may replace it. Members write in these folders, and trust each other with the content of files, never with a
path. What a member works in is in a folder of that member.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from envbuild.core.errors import EngineError
from envbuild.core.file_status import file_status
from envbuild.core.ownership import closed_groups, group_name, own_users, user_name
from envbuild.core.shell import shell_word
from envbuild.core.store.access_list_check import check_access_list
from envbuild.core.store.permissions import GROUP, OTHERS, STICKY, is_shared, make_shared_folder
from envbuild.core.store.place import is_open, is_root_of, may_change
from envbuild.core.text import human_list

LOCKS = "locks"  # a lock needs no more than the right to read its file: only users of the store may enter the folder


def check_members(
    root: Path, folders: Sequence[str], private: Sequence[str], report: Callable[[str], object] = lambda text: None
) -> None:
    """Check that no other user than its owner can replace a folder of the store `root`; for its owner and for root,
    make that so. `folders`: those that members share, parents first; `private`: those of one user. `report`: called
    with a line about a repair.

    Raises EngineError, OSError.
    """
    status = root.stat()
    if not is_shared(root):
        if (group := _writing_group(root, folders)) and not status.st_mode & OTHERS:
            _close_to_group(root, folders)
            report(
                f"store {root}: the group {group} could write in it, because of an umask; closed now (a store for a "
                f"group: chmod 3775 {shell_word(root)})"
            )
        for name in (*folders, *private):
            check_entry(root / name)
        return
    if not status.st_mode & STICKY:
        if not may_change(status.st_uid):
            raise EngineError(
                f"members of the group that shares the store {root} could replace each other's folders",
                hint=f"its owner, {user_name(status.st_uid)}, types: chmod +t {shell_word(root)}",
            )
        root.chmod(status.st_mode & 0o7777 | STICKY)
        if status.st_gid not in closed_groups():  # also made so by an umask, in a folder with the setgid bit
            report(
                f"store {root}: the group {group_name(status.st_gid)} shares it: it may write the folder, which has "
                "the setgid bit; for a store of yours alone set ENVBUILD_STORE to another folder, of mode 700"
            )
    repaired = [f"{name}/" for name in folders if _check_folder(root / name, root, sticky=has_folders(name, folders))]
    if repaired:
        report(f"store {root}: other users could replace what is in {', '.join(repaired)}; only its owner can now")
    listed = [str(path) for path in (root, *map(root.joinpath, folders)) if check_access_list(path, root)]
    if listed:
        report(
            f"store {root}: access lists of {human_list(listed, len(listed))} are removed: its group alone shares it"
        )


def has_folders(folder: str, names: Iterable[str]) -> bool:
    """Return whether another folder of `names` is in `folder`."""
    return any(name.startswith(f"{folder}/") for name in names)


def _writing_group(root: Path, folders: Sequence[str]) -> str:
    """Return the group that may write in a store, or in one of its folders; "" for none."""
    for path in (root, *(root / name for name in folders)):
        with contextlib.suppress(FileNotFoundError):
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_mode & GROUP and may_change(found.st_uid):
                return group_name(found.st_gid)
    return ""


def _close_to_group(root: Path, folders: Sequence[str]) -> None:
    """Take a store that an umask left writable for a group from that group."""
    for path in (root, *(root / name for name in folders)):
        with contextlib.suppress(FileNotFoundError):
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode) and may_change(found.st_uid):
                _change_folder(path, -1, stat.S_IMODE(found.st_mode) & ~(GROUP | STICKY))


def check_entry(path: Path) -> None:
    """Check that a folder of a store that no group shares is this user's: others may have the right to make it.

    Raises EngineError, OSError.
    """
    try:
        found = file_status(path, follow=False)
    except FileNotFoundError:
        return
    if found.owner not in own_users():
        raise EngineError(
            f"{path} belongs to {user_name(found.owner)}, who could make your commands change files elsewhere",
            hint=f"rm -r {shell_word(path)}",
        )
    if stat.S_ISDIR(found.stat.st_mode) and is_open(found.stat.st_mode):
        raise EngineError(
            f"every user may write {path}, and could make your commands change files elsewhere",
            hint=f"chmod -R o-w {shell_word(path)}",
        )


def _check_folder(path: Path, root: Path, *, sticky: bool) -> bool:
    """Check a folder that members share; return whether its mode was repaired."""
    owner = file_status(root).owner
    name = user_name(owner)
    if may_change(owner) and not os.path.lexists(path):
        make_shared_folder(path, sticky=sticky, closed=path.name == LOCKS)
    ready = f"its owner, {name}, types: ENVBUILD_STORE={shell_word(root)} envbuild store check"
    try:
        found = file_status(path, follow=False)
    except FileNotFoundError:
        raise EngineError(
            f"the store {root} is not ready for its group: the folder {path.name} is missing", hint=ready
        ) from None
    if not stat.S_ISDIR(found.stat.st_mode):
        raise EngineError(f"{path} is not a folder", hint=f"its owner, {user_name(found.owner)}, removes it")
    if found.owner not in (owner, 0) and is_root_of(found.owner) and is_root_of(owner):
        _change_folder(path, owner)
        found = file_status(path, follow=False)
    if (other := found.owner) not in (owner, 0):
        raise EngineError(
            f"{path} belongs to {user_name(other)}, who could make commands of other members change their files",
            # Until then that user can put a link there, which neither follows.
            hint=f"as root: fusermount3 -u {shell_word(path)}"
            if found.mounter == other
            else f"as root: chown -h {shell_word(name)} {shell_word(path)}",
        )
    mode = stat.S_IMODE(found.stat.st_mode)
    wanted = mode & ~OTHERS | (STICKY if sticky else 0)
    if mode == wanted:
        return False
    if not may_change(found.stat.st_uid):
        raise EngineError(
            f"members of the group that shares the store {root} could replace what is in {path}", hint=ready
        )
    _change_folder(path, -1, wanted)
    return True


def _change_folder(path: Path, owner: int, mode: int = -1) -> None:
    """Change the owner or the mode of a folder that another user may be replacing by a link. Raises OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if owner >= 0:
            os.fchown(folder, owner, -1)
        if mode >= 0:
            os.fchmod(folder, mode)
    finally:
        os.close(folder)
