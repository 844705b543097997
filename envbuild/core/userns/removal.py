"""Remove folders whose files may belong to subordinate ids: layers, old working folders.

Nothing here raises: the next run tries again to remove what could not be removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from envbuild.core.errors import EnvbuildError
from envbuild.core.userns.call import call
from envbuild.core.userns.process import Child, spawn


def remove_tree(path: Path) -> None:
    """Remove a folder; where this user may not, in a user namespace."""
    shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):
        remove_trees([path])


def remove_trees(paths: Iterable[Path]) -> None:
    """Remove folders, all in one process in a user namespace."""
    if given := [str(path) for path in paths]:
        with contextlib.suppress(EnvbuildError, OSError):
            call(_remove, paths=given)


def start_removal(paths: Iterable[Path]) -> Child:
    """Start a process that removes folders, and dies with this one."""
    return spawn(_remove, {"paths": [str(path) for path in paths]}, output=subprocess.DEVNULL)


def _remove(*, paths: Sequence[str]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
