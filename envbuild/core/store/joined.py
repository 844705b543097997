"""The stores of other users that this user joined: owner, group and path of each, in the user's own configuration.

Nothing in a store could state that: its owner can rename what is in it, also folders that other commands of this user
made there.
"""

from __future__ import annotations

import os
from pathlib import Path

from envbuild.core.errors import EngineError
from envbuild.core.file_status import file_status
from envbuild.core.ownership import is_own_file
from envbuild.core.regular_file import read_bounded
from envbuild.core.store.json_files import write_atomic
from envbuild.core.user_folders import config_folder

NAME, MOST = "stores", 1 << 20  # bytes


def has_joined(root: Path) -> bool:
    """Return whether this user joined the store `root`, as one of its owner and its group."""
    return _line(root) in _read()


def join_store(root: Path) -> None:
    """Record that this user uses the store `root`. Raises EngineError for a user without a home, OSError."""
    folder, line = config_folder(), _line(root)
    if folder is None or b"\n" in line:
        raise EngineError(
            "this user has no home folder, where it is recorded which stores are used"
            if folder is None
            else f"the path of the store has an end of line: {root}",
            hint="set ENVBUILD_STORE to a folder of your own",
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = b"".join(one + b"\n" for one in sorted({*_read(), line}))
    write_atomic(folder / NAME, lambda file: file.write(content), 0o600)


def _line(root: Path) -> bytes:
    found = file_status(root)
    return b"%d %d %s" % (found.owner, found.stat.st_gid, os.fsencode(root.resolve()))


def _read() -> list[bytes]:
    """Return the stores in the user's file; none if another user may have written it."""
    folder = config_folder()
    try:
        if folder is None or not is_own_file(folder / NAME):
            return []
        return read_bounded(folder / NAME, MOST).split(b"\n")[:-1]
    except (OSError, ValueError):
        return []
