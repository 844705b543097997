"""A store for one build: it has inputs, each compared with its digest, and no unit, layer or pack of another build."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from envbuild.build.plan.units import Plan
from envbuild.core.console import Reporter
from envbuild.core.errors import InputError
from envbuild.core.regular_file import TooLargeError
from envbuild.core.store.store import Store
from envbuild.core.text import counted
from envbuild.core.userns.removal import remove_tree
from envbuild.lock.inputs import list_inputs
from envbuild.lock.model import Lock


@contextmanager
def open_temporary_store(store: Store) -> Iterator[Store]:
    """Yield an empty store on the disk of `store`, which has its logs; it is removed at the end of the context.

    Raises EngineError where the disk is full."""
    with store.workdir() as work:
        try:
            yield replace(Store.open(work / "store", store.report), logs=store.own / "logs")
        finally:
            remove_tree(work / "store")  # layers may belong to subordinate ids


def link_inputs(plan: Plan, lock: Lock, source: Store, target: Store, reporter: Reporter) -> None:
    """Put the inputs of a build that `source` has into `target`. All are read, as a task of the reporter. Raises
    InputError for a corrupt one, which is removed.

    Of a store that a group shares they are copied: other members may write its files while the build runs."""
    wanted = {blob.sha256: 0 for unit in plan.units for item in unit.inputs for blob in item.blobs}
    wanted |= {entry.sha256: entry.size for entry in list_inputs(lock)}
    have = [sha256 for sha256, size in sorted(wanted.items()) if source.has_blob(sha256, size)]
    reporter.start("inputs", f"sha256 of {counted(len(have), 'input')}")
    try:
        for number, sha256 in enumerate(have, 1):
            if source.is_shared or not _link(sha256, source, target):
                _copy(sha256, source, target)
            reporter.note("inputs", f"{number} of {len(have)}")
    finally:
        reporter.finish("inputs")


def _link(sha256: str, source: Store, target: Store) -> bool:
    source.check_blob(sha256)
    try:
        os.link(source.blob(sha256), target.blob(sha256), follow_symlinks=False)
    except OSError:  # on another disk
        return False
    return True


def _copy(sha256: str, source: Store, target: Store) -> None:
    found = ""
    with suppress(TooLargeError):
        found = target.copy_blob(source.blob(sha256))
    if found != sha256:
        source.check_blob(sha256)
        raise InputError(f"the input sha256:{sha256} was changed while it was read", hint="run the command again")
