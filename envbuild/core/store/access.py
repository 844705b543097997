"""Access to a store, for commands that only read it and would find nothing in a closed one."""

from __future__ import annotations

import os
from pathlib import Path

from envbuild.core.errors import EngineError
from envbuild.core.ownership import user_name

OWN_STORE = "set ENVBUILD_STORE to a folder on a local disk that you may write"


def check_readable(root: Path) -> None:
    """Check that this user may read the folder `root`; one that does not exist is an empty store.

    Raises EngineError with the folder on the way that is closed, and its owner.
    """
    if closed := find_closed(root):
        what, owner = "it" if closed == root.absolute() else closed, user_name(closed.stat().st_uid)
        raise EngineError(
            f"the store {root} cannot be read: {what} belongs to {owner}, and is closed to you", hint=OWN_STORE
        )


def find_closed(root: Path) -> Path | None:
    """Return the first folder on the way to `root`, or itself, that this user may not enter; for `root`: or list."""
    for folder in (*reversed(root.absolute().parents), root.absolute()):
        rights = os.X_OK | (os.R_OK if folder == root.absolute() else 0)
        if not folder.is_dir():  # missing, or a file, which is reported when it is used
            return None
        if not os.access(folder, rights):
            return folder
    return None
