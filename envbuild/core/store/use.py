"""Use of a store by a command: it holds the lock "gc" and removes what killed commands left.

Every command that writes in a store has it `in_use` all the time (`envbuild.spec.workspace.open_workspace`): many at
once, or one alone that removes what others could need.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
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
    replaced = find_replaced(store) if clean else []
    with (
        store.lock(LOCK, waiting, shared=not alone),
        removing_old_folders(store, replaced) if clean else contextlib.nullcontext(),
    ):
        yield


def find_replaced(store: Store) -> list[Path]:
    """Return the layers in tmp/ that others replaced (`envbuild.oci.layers.layer.move_to_store`), if no command of this
    moment can work with one."""
    found = list(store.tmp.glob("removed-*")) if store.tmp.is_dir() and not store.is_outside(store.tmp) else []
    with contextlib.suppress(EngineError):
        if found:
            with store.lock(LOCK, raise_busy):
                return found
    return []


def report_waiting(reporter: Reporter) -> None:
    reporter.info("another envbuild removes what is not needed from this store; waiting")


def raise_busy() -> NoReturn:
    """Raise EngineError: another process works in the store."""
    raise EngineError("another envbuild works in this store", hint="run it again when that one has ended")


@contextlib.contextmanager
def removing_old_folders(store: Store, replaced: Iterable[Path]) -> Iterator[None]:
    """Remove what killed processes left in tmp/, and `replaced` layers, beside the work, in a process that dies with
    this one."""
    paths = [*store.abandoned(), *replaced]
    if not paths:
        yield
        return
    import subprocess  # few commands find any

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
