"""Work on layers of the store that needs their owners to read as the unit's own: done in a process in the user
namespace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.engines.embedded.spawn import spawn
from envbuild.store import Store

if TYPE_CHECKING:
    from envbuild.squashfs.pack_format import PackFormat

CHUNK = 1 << 20


def read_layer(store: Store, diff_id: str) -> Iterator[bytes]:
    """The canonical tar of a layer, in chunks. Raises EngineError."""
    child = spawn({"mode": "tar", "store": str(store.root), "diff_id": diff_id})
    try:
        assert child.process.stdout is not None
        while chunk := child.process.stdout.read(CHUNK):
            yield chunk
        child.result()
    finally:
        child.kill()


def pack(store: Store, diff_id: str, form: PackFormat, jobs: int) -> None:
    """Make the pack of a layer. Raises EngineError."""
    job = {
        "mode": "pack",
        "store": str(store.root),
        "diff_id": diff_id,
        "format": [form.codec, form.level, form.block],
        "jobs": jobs,
    }
    spawn(job, output=None).result()


def remove(paths: Sequence[Path]) -> None:
    """Remove folders, also those whose files belong to subordinate ids. Never fails: what stays is tried again by the
    next run."""
    if paths:
        child = spawn({"mode": "remove", "paths": [str(path) for path in paths]})
        child.process.communicate()
        child.kill()
