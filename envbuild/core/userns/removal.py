"""Remove folders whose files may belong to subordinate ids: layers, old working folders.

Nothing here raises: the next run tries again to remove what could not be removed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from envbuild.core.errors import EnvbuildError
from envbuild.core.folder_removal import discard_folder
from envbuild.core.userns.namespaces import SetupError
from envbuild.core.userns.process import Child, spawn


def remove_tree(path: Path) -> None:
    """Remove a folder; where this user may not, in a user namespace."""
    discard_folder(path)
    if os.path.lexists(path):
        remove_trees([path])


def remove_trees(paths: Iterable[Path]) -> None:
    """Remove folders, all in one process in a user namespace."""
    if not (given := list(paths)):
        return
    if os.geteuid() == 0:
        _remove(paths=[str(path) for path in given])
        return
    with contextlib.suppress(EnvbuildError, SetupError, OSError):
        start_removal(given).result()


def start_removal(paths: Iterable[Path]) -> Child:
    """Start a process that removes folders, and dies with this one.

    Without subordinate ids all files are the user's own, in folders that may be closed to their owner."""
    return spawn(_remove, {"paths": [str(path) for path in paths]}, output=subprocess.DEVNULL, one_id=True)


def _remove(*, paths: Sequence[str]) -> None:
    for path in paths:
        discard_folder(Path(path))
