"""Use of a store by a command: it holds the lock "gc" and removes what killed commands left.

Every command that writes in a store has it `in_use` all the time (`envbuild.spec.workspace.open_workspace`): many at
once, or one alone that removes what others could need.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NoReturn

from envbuild.core.console import Reporter
from envbuild.core.errors import EngineError
from envbuild.core.folder_removal import discard_folder
from envbuild.core.store.store import Store

LOCK = "gc"
CLEANING = 30  # seconds that the end of a command waits for the removal of old folders


@contextlib.contextmanager
def in_use(store: Store, reporter: Reporter, *, alone: bool = False, clean: bool = True) -> Iterator[None]:
    """Use the store together with other commands, or `alone`; unless `clean`, what killed commands left remains.

    Raises EngineError with `alone` if others use it.
    """
    waiting = raise_busy if alone else lambda: report_waiting(reporter)
    with store.lock(LOCK, waiting, shared=not alone), removing_abandoned(store) if clean else contextlib.nullcontext():
        yield


def report_waiting(reporter: Reporter) -> None:
    reporter.info("another envbuild removes what is not needed from this store; waiting")


def raise_busy() -> NoReturn:
    """Raise EngineError: another process works in the store."""
    raise EngineError("another envbuild works in this store", hint="run it again when that one has ended")


@contextlib.contextmanager
def removing_abandoned(store: Store) -> Iterator[None]:
    """Remove what killed processes left in tmp/, beside the work, in a process that dies with this one."""
    paths = list(store.abandoned())
    if not paths:
        yield
        return
    import subprocess  # only after a killed command

    from envbuild.core.userns.removal import start_removal

    child = start_removal(paths)
    try:
        yield
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(CLEANING)
    finally:
        child.kill()
    for path in paths:  # where there are no user namespaces
        discard_folder(path)
