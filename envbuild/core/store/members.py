"""The owners of a store's folders: which other users could change what a command of this user does in it.

Files of a store are found by name. A user who may replace a folder of it by a link makes the commands of other users
write, change modes and remove files elsewhere. So the folders of a store that a group shares belong to the store's
owner or to root, and only the owner of a name in it may replace it (the sticky bit: inode(7)); members write in these
folders, and trust each other with what is in them. What a member works in is in a folder of that member.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from envbuild.core.errors import EngineError
from envbuild.core.ownership import in_user_namespace, own_users, user_name
from envbuild.core.store.permissions import STICKY, is_shared, make_shared_folder


def check_members(root: Path, folders: Iterable[str]) -> None:
    """Check that no other user than its owner can replace a folder of the store `root`; for its owner and for root,
    make that so. `folders`: those that members share, parents first.

    Raises EngineError, OSError.
    """
    status = root.stat()
    root_user = os.geteuid() == 0 and not in_user_namespace()
    if root_user and status.st_uid not in own_users():
        raise EngineError(
            f"the store {root} belongs to {user_name(status.st_uid)}, who could make commands of root change any file",
            hint="set ENVBUILD_STORE to a folder of root, or work as that user",
        )
    if not is_shared(root):
        return
    own = root_user or status.st_uid == os.geteuid()
    name = user_name(status.st_uid)
    if not status.st_mode & STICKY:
        if not own:
            raise EngineError(
                f"members of the group that shares the store {root} could replace each other's folders",
                hint=f"its owner, {name}, types: chmod +t {root}",
            )
        root.chmod(status.st_mode & 0o7777 | STICKY)
    for folder in folders:
        path = root / folder
        if own and not os.path.lexists(path):
            make_shared_folder(path)
        _check_folder(path, status.st_uid, name, change=root_user)


def _check_folder(path: Path, owner: int, name: str, *, change: bool) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        raise EngineError(
            f"the store {path.parent} is not ready for its group: the folder {path.name} is missing",
            hint=f"its owner, {name}, types: ENVBUILD_STORE={path.parent} envbuild store check",
        ) from None
    if not stat.S_ISDIR(found.st_mode):
        raise EngineError(f"{path} is not a folder", hint=f"its owner, {user_name(found.st_uid)}, removes it")
    if found.st_uid in (owner, 0):
        return
    if change:
        os.chown(path, owner, -1, follow_symlinks=False)
        return
    raise EngineError(
        f"{path} belongs to {user_name(found.st_uid)}, who could make commands of other members change their files",
        hint=f"as root: chown {name} {path}",
    )
