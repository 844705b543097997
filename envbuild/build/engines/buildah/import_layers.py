"""The import of the layers of a finished buildah image into the store: unpacked, cleaned and packed like envbuild's
own."""

from __future__ import annotations

import json
import os
import stat
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from envbuild.core.bounded_tar import BoundedTarFile
from envbuild.core.errors import EngineError
from envbuild.core.folder_removal import discard_folder
from envbuild.core.store.store import Store
from envbuild.oci.layers.layer import make_layer
from envbuild.oci.layers.lower_view import LowerView
from envbuild.oci.layers.upper_tree import apply_tar
from envbuild.squashfs.pack.format import PackFormat
from envbuild.squashfs.pack.store_packs import PackSink
from envbuild.squashfs.pack.unpack import unpack_layers

MOUNT_POINTS = (
    "etc/hostname",
    "etc/hosts",
    "etc/resolv.conf",
)  # empty files that buildah leaves where it mounted its own


def import_layers(
    *,
    store: str,
    work: str,
    archive: str,
    units: Sequence[str],
    have: Mapping[str, str],
    epoch: int,
    packs: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Make layers of the store out of a Docker archive; returns the new ones (`LayerRecord` as JSON), bottom first.

    `units`: the unit of each layer in the archive; neighbours of one unit become one layer. `have`: unit → diff id of
    those that the store has. `work`: a folder on the store's file system. Must run as root, or root of a user
    namespace. Raises EngineError when the archive does not match the plan.
    """
    layer_store = Store(Path(store))
    made: list[dict[str, Any]] = []
    lowers: list[Path] = []
    with BoundedTarFile.open(archive) as image:
        names = json.loads(_read(image, "manifest.json"))[0]["Layers"]
        if len(names) != len(units):
            raise EngineError(
                f"buildah made {len(names)} layers of the {len(units)} that the Containerfile has",
                hint="this version of buildah is not known; report it: buildah --version",
            )
        for unit, group in groupby(zip(units, names, strict=True), key=lambda item: item[0]):
            if unit in have:
                unpack_layers(store=store, diff_ids=[have[unit]])
                lowers.append(layer_store.layer_tree(have[unit]))
                continue
            folder = Path(work) / "layer"
            tree = folder / "tree"
            folder.mkdir(mode=0o700)
            tree.mkdir()
            for _, name in group:
                content = image.extractfile(name)
                assert content is not None, name
                apply_tar(content, tree, lowers)
            _remove_mount_points(tree, lowers)
            sinks = [PackSink(PackFormat(**form)) for form in packs]
            record = make_layer(folder, lowers, layer_store, epoch=epoch, unit=unit, sinks=sinks)
            discard_folder(folder)  # still there when the store had the layer
            made.append(asdict(record))
            lowers.append(layer_store.layer_tree(record.diff_id))
    Path(archive).unlink()
    return made


def _remove_mount_points(tree: Path, lowers: Sequence[Path]) -> None:
    """Remove what buildah leaves in a layer for its own sake."""
    view = LowerView([os.fsencode(path) for path in lowers])
    for name in MOUNT_POINTS:
        path = tree / name
        if (tree / "etc").is_symlink() or not os.path.lexists(path):
            continue
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_size == 0 and view.entry(os.fsencode(name)) is None:
            path.unlink()


def _read(image: tarfile.TarFile, name: str) -> bytes:
    content = image.extractfile(name)
    assert content is not None, name
    return content.read()
