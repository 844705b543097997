"""Locks of a store, and the folders in which processes work: each is its process's alone until that ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from envbuild.core import signals
from envbuild.core.folder_removal import discard_folder
from envbuild.core.regular_file import open_regular
from envbuild.core.store.lock_holder import wait_for_lock
from envbuild.core.store.permissions import make_private_folder, open_lock_file

WORKDIR = re.compile(r"[0-9]+-[0-9a-f]{8}")  # the name of the folder of a process in tmp/


@contextlib.contextmanager
def hold_lock(
    path: Path, report: Callable[[str], object], waiting: Callable[[], None] | None = None, *, shared: bool = False
) -> Iterator[None]:
    """Hold the lock `path`, exclusively or `shared`.

    waiting: called once if another process has the lock; an exception of it ends the wait.
    report: called with the name of that process if it takes long.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with open_lock_file(path) as file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                waiting()
            wait_for_lock(
                file.fileno(),
                kind,
                lambda holder: report(f"waiting for the lock {path.name!r} of this store, held by {holder}"),
            )
        yield


@contextlib.contextmanager
def work_folder(tmp: Path, lock: contextlib.AbstractContextManager[None]) -> Iterator[Path]:
    """Make a private folder in `tmp` and remove it at the end; a later process removes it if this one is killed.

    lock: held until the folder is marked as used."""
    path = tmp / f"{os.getpid()}-{os.urandom(4).hex()}"
    with contextlib.ExitStack() as stack:
        with lock:  # until its own lock is held the folder looks abandoned
            make_private_folder(path)
            try:
                file = stack.enter_context((path / "alive").open("w"))
            except BaseException:  # the disk may have no room for another file
                discard_folder(path)
                raise
            fcntl.flock(file, fcntl.LOCK_EX)
        stack.callback(discard_folder, path)
        stack.enter_context(signals.leftover(lambda: discard_folder(path)))
        yield path


def abandoned_folders(tmp: Path) -> list[Path]:
    """Return the folders in `tmp` whose process has ended."""
    folders = [path for path in sorted(tmp.iterdir()) if WORKDIR.fullmatch(path.name) and path.is_dir()]
    return [path for path in folders if not is_locked(path / "alive")]


def is_locked(path: Path) -> bool:
    """Return whether a running process holds the lock on a file."""
    try:
        with open_regular(path, follow=False) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # a file that another user hides may be locked
        return True
    except OSError:
        pass
    return False
