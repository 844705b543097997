"""Layers of a store, made of small trees, for tests of what reads layers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from envbuild.core.store.store import LayerRecord, Store
from envbuild.oci.layers.layer import make_layer

EPOCH = 1_700_000_000


def layer(
    store: Store, unit: str, fill: Callable[[Path], object], lowers: Sequence[LayerRecord] = (), epoch: int = EPOCH
) -> LayerRecord:
    """Return the layer that `fill` (which gets an empty folder) makes over `lowers`."""
    with store.workdir() as work:
        folder = work / "layer"
        before = os.umask(0o022)  # as units are built, independent of the umask of the test run
        try:
            (folder / "tree").mkdir(parents=True)
            fill(folder / "tree")
        finally:
            os.umask(before)
        trees = [store.layer_tree(lower.diff_id) for lower in lowers]
        return make_layer(folder, trees, store, epoch=epoch, unit=unit)


def files(**contents: str) -> Callable[[Path], None]:
    """Return a `fill` that writes files, named by keywords."""

    def fill(tree: Path) -> None:
        for name, content in contents.items():
            (tree / name).write_text(content)

    return fill
