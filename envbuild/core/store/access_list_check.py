"""Access control lists (acl(5)) of the folders that the members of a group share in a store."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from envbuild.core.access_lists import has_access_lists, remove_access_lists, takes_writing
from envbuild.core.errors import EngineError
from envbuild.core.file_status import file_status
from envbuild.core.ownership import find_named_writer, own_users, user_name
from envbuild.core.shell import shell_word
from envbuild.core.store.place import may_change


def check_access_list(path: Path, root: Path) -> bool:
    """Check that no access list lets further users write a folder that members share; return whether one was removed.
    A folder above with a default list, as for a backup, leaves it to all that is made there.

    Raises EngineError, OSError.
    """
    if not has_access_lists(path):
        return False
    owner = file_status(root).owner
    if takes_writing(path):
        place, mode = shell_word(path), path.stat().st_mode & 0o7777
        raise EngineError(
            f"the group that shares the store {root} may not write {path}, by its access list",
            hint=f"its owner, {user_name(owner)}, types: setfacl -b {place} && chmod {mode:o} {place}",
        )
    if may_change(owner):
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            mode = stat.S_IMODE(os.fstat(folder).st_mode)
            remove_access_lists(folder)
            os.fchmod(folder, mode)  # its bits of the group were the mask
        finally:
            os.close(folder)
        return not has_access_lists(path)
    if other := find_named_writer(str(path), own_users(), frozenset((root.stat().st_gid,))):
        raise EngineError(
            f"{other} can write {path}, by its access list, and is not of the group that shares the store",
            hint=f"its owner, {user_name(owner)}, types: ENVBUILD_STORE={shell_word(root)} envbuild store check",
        )
    return False
