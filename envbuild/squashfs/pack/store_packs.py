"""The packs of the store's layers: where they are, and how they are made.

A pack is made while its layer is read for its digest (`PackSink`), or later from the layer in the store (`pack_layer`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from envbuild.core.store.permissions import move_into_store, share_file
from envbuild.core.store.store import LayerRecord, Store
from envbuild.core.userns.call import call
from envbuild.oci.layers.layer import drop_layer, implied_folders, share_layer, stored_members, write_members
from envbuild.oci.tar.writer import TarSink
from envbuild.squashfs.pack.format import PackFormat
from envbuild.squashfs.pack.workers import Workers
from envbuild.squashfs.pack.writer import PackWriter, pack_name


@dataclass(frozen=True, slots=True)
class PackSink:
    """A `SinkFactory` (envbuild.oci.layers.layer) of packs in `form`. `jobs`: compression threads (0: all cores), or
    those that it shares with others."""

    form: PackFormat
    jobs: int | Workers = 0

    def open(self, path: Path) -> PackWriter:
        """Return the writer of a pack at `path`."""
        return PackWriter(path, codec=self.form.codec, level=self.form.level, block=self.form.block, jobs=self.jobs)

    def give(self, path: Path, store: Store, diff_id: str) -> Path:
        """Move the finished pack of a layer to its place in the store, and return that."""
        pack = pack_path(store, diff_id, self.form)
        move_into_store(path, pack)
        return pack


def pack_path(store: Store, diff_id: str, form: PackFormat) -> Path:
    """Return where the store keeps the pack of a layer."""
    return store.root / "packs" / pack_name(diff_id, form.codec, form.level, form.block)


def pack_layer(store: Store, record: LayerRecord, form: PackFormat, jobs: int = 0) -> Path:
    """Return the pack of a layer of the store; make it when it is not there.

    A user other than root reads the layer inside a user namespace.
    """
    path = pack_path(store, record.diff_id, form)
    if not path.is_file():
        from envbuild.squashfs.pack.unpack import ensure_trees

        ensure_trees(store, [record.diff_id])
        call(pack_stored, store=str(store.root), diff_id=record.diff_id, form=asdict(form), jobs=jobs)
        share_file(path)
    return path


def pack_stored(*, store: str, diff_id: str, form: Mapping[str, Any], jobs: int) -> None:
    """Make the pack of a stored layer in this process, and check the layer's digest on the way."""
    home = Store(Path(store))
    tar, sink = TarSink(), PackSink(PackFormat(**form), jobs)
    with home.workdir() as work:
        temporary = work / "pack"
        with contextlib.ExitStack() as stack:
            writer = stack.enter_context(sink.open(temporary))
            write_members(stored_members(home, diff_id), [tar, writer])
            stack.pop_all()  # closed by write_members
        if tar.diff_id != diff_id:
            drop_layer(home, diff_id, tar.sha256)
        pack = sink.give(temporary, home, diff_id)
        share_layer(home, home.layer(diff_id), pack, home.layer_tree(diff_id), implied_folders(home, diff_id))
