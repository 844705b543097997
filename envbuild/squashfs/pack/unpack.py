"""Trees of layers that another user of a shared store built: unpacked from their packs, for this user alone.

A tree of another user is of no use: its files belong to the ids of that user, and a setuid program in it would run as
that user. The pack holds the same layer, and its digest shows that nothing is missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from envbuild.core.bombs import EMPTY, most_unpacked
from envbuild.core.errors import DamagedPackError, EngineError, EnvbuildError
from envbuild.core.store.build_records import SharedLayer
from envbuild.core.store.store import Store
from envbuild.core.text import amount
from envbuild.core.userns import file_calls
from envbuild.core.userns.call import call
from envbuild.oci.layers.copy_tree import TreeSink
from envbuild.oci.layers.layer import add_layer
from envbuild.oci.layers.scan import scan_canonical
from envbuild.oci.tar.writer import TarSink
from envbuild.squashfs.pack.file import MALFORMED, Pack, read_pack
from envbuild.squashfs.pack.reader import send_members


def ensure_trees(store: Store, diff_ids: Iterable[str]) -> None:
    """Unpack the layers whose tree this user does not have. Raises EngineError for a layer that the store lacks."""
    missing = [diff_id for diff_id in dict.fromkeys(diff_ids) if not store.has_tree(diff_id)]
    if missing:
        call(unpack_layers, store=str(store.root.resolve()), diff_ids=missing)


def unpack_layers(*, store: str, diff_ids: Iterable[str]) -> None:
    """Unpack layers in this process, which must be root, or root of a user namespace."""
    home = Store(Path(store))
    for diff_id in diff_ids:
        with home.lock(f"tree-{diff_id.removeprefix('sha256:')}"):
            if not home.has_tree(diff_id):
                _unpack(home, diff_id)


def _unpack(store: Store, diff_id: str) -> None:
    shared = SharedLayer.read(store.root / "packs", diff_id)
    if shared is None:
        raise EngineError(f"the store has no layer {diff_id}", hint="run envbuild make again to build it")
    pack = store.root / "packs" / shared.pack
    with store.workdir() as work:
        folder = work / "layer"
        folder.mkdir(mode=0o700)
        tar, tree = TarSink(), TreeSink(folder / "tree")
        try:
            found = read_pack(pack)
            send_members(found, [tar, tree], _limit(found))
        except (*MALFORMED, EnvbuildError) as error:
            if isinstance(error, EngineError) and not isinstance(error, DamagedPackError):
                raise  # the tree cannot be made here
            why = error.message if isinstance(error, EnvbuildError) else str(error)
            raise _remove_corrupt(pack, why) from error
        if tar.diff_id != diff_id:
            raise _remove_corrupt(pack, f"expected {diff_id}, got {tar.diff_id}")
        if len(scan_canonical(folder / "tree", [*tree.implied]).found) != tar.files:
            raise EngineError(
                f"the tree of the layer {diff_id} cannot be made: it is not the same layer", where=str(pack)
            )
        file_calls.sync(work)
        add_layer(store, folder, shared.record, tree.implied, unpacked=True)


def _limit(pack: Pack) -> int | None:
    """Return the most bytes that the pack of another user may unpack to; None: of one's own as many as it has.

    By a few bytes, another member could fill the disk, or keep a processor busy for days. Raises DamagedPackError."""
    assert pack.file is not None
    found = os.fstat(pack.file.fd)
    if found.st_uid == os.geteuid():
        return None
    most = most_unpacked(found.st_size) + EMPTY
    if (total := sum(pack.index.columns["sizes"])) > most:
        raise DamagedPackError(f"{amount(found.st_size)} unpack to {amount(total)}")
    return most


def _remove_corrupt(pack: Path, why: str) -> EngineError:
    pack.unlink(missing_ok=True)
    hint = "it was removed; run envbuild make again to build the layer"
    return EngineError(f"corrupt pack in the store: {why}", hint=hint, where=str(pack))
