"""The import of units from a Docker archive into the store: what the steps of each stage wrote, through envbuild's
clean list and packer."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envbuild.build.engines.build_context import SYSTEM
from envbuild.build.engines.docker.stages import Role
from envbuild.build.plan.own_hosts import LINK, TARGET
from envbuild.core.bounded_tar import BoundedTarFile
from envbuild.core.errors import EngineError
from envbuild.core.folder_removal import discard_folder, remove_folder
from envbuild.core.store.store import Store
from envbuild.oci.layers.layer import make_layer
from envbuild.oci.layers.upper_tree import apply_tar
from envbuild.oci.tar.decompress import open_decompressed
from envbuild.squashfs.pack.format import PackFormat
from envbuild.squashfs.pack.store_packs import PackSink
from envbuild.squashfs.pack.unpack import unpack_layers

WRITERS = ("ADD ", "COPY ", "RUN ")  # what BuildKit writes into the history of an instruction with a layer


def import_units(
    *,
    store: str,
    work: str,
    archive: str,
    units: Sequence[Mapping[str, Any]],
    have: Mapping[str, str],
    packs: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Make layers of the store out of a Docker archive; return the new ones (`LayerRecord` as JSON), bottom first.

    `units`, in the order of the plan: `name`, `image` (id; empty for one that the store has), `roles` of the layers,
    `lowers`, `keep`, `epoch`. `have`: unit → diff id of those that the store has. `work`: a folder on the store's file
    system. Must run as root, or root of a user namespace. Raises EngineError when the archive does not match the plan.
    """
    layer_store = Store(Path(store))
    made: list[dict[str, Any]] = []
    trees: dict[str, Path] = {}
    with BoundedTarFile.open(archive) as saved:
        images = {image_id(entry["Config"]): entry for entry in json.loads(_read(saved, "manifest.json"))}
        for unit in units:
            name = unit["name"]
            if name in have:
                unpack_layers(store=store, diff_ids=[have[name]])
                trees[name] = layer_store.layer_tree(have[name])
                continue
            lowers = [trees[lower] for lower in unit["lowers"]]
            folder = Path(work) / "layer"
            (folder / "tree").mkdir(parents=True, mode=0o700)
            write_upper(saved, images[unit["image"].removeprefix("sha256:")], unit, folder / "tree", lowers)
            sinks = [PackSink(PackFormat(**form)) for form in packs]
            record = make_layer(
                folder, lowers, layer_store, epoch=unit["epoch"], keep=unit["keep"], unit=name, sinks=sinks
            )
            discard_folder(folder)  # still there when the store had the layer
            made.append(asdict(record))
            trees[name] = layer_store.layer_tree(record.diff_id)
    Path(archive).unlink()
    return made


def image_id(config: str) -> str:
    """Return the id (hex) of an image, of the path of its configuration in an archive of any release."""
    return config.rpartition("/")[2].removesuffix(".json")


def write_upper(
    saved: tarfile.TarFile, entry: Mapping[str, Any], unit: Mapping[str, Any], tree: Path, lowers: Sequence[Path]
) -> None:
    """Unpack what the steps of a unit wrote into `tree`, as the embedded engine leaves it.

    Raises EngineError if a step put something else in the place of a folder that other engines mount: a link there
    would lead out of the tree.
    """
    config = json.loads(_read(saved, entry["Config"]))
    kept: dict[Path, set[Path]] = {}
    for role, name in layer_roles(config["history"], entry["Layers"], unit["roles"], unit["name"]):
        if role == Role.OTHER or not name:
            continue
        content = saved.extractfile(name)
        assert content is not None, name
        with open_decompressed(content) as layer, same_times(kept):
            apply_tar(layer, tree, lowers)  # type: ignore[arg-type]
            check_folders(kept, unit["name"])
        if role == Role.SEED:
            kept = {tree / name: {*(tree / name).iterdir()} for name in SYSTEM if is_folder(tree / name)}
    remove_link(tree)
    # other file systems are mounted there for each step of the embedded engine
    for path in (tree / name for name in SYSTEM):
        if path not in kept and is_folder(path):
            remove_folder(path)
    with same_times(kept):
        for path, names in kept.items():
            for new in {*path.iterdir()} - names:
                remove_entry(new)


def check_folders(folders: Iterable[Path], unit: str) -> None:
    """Raise EngineError for a path that is not a folder any more."""
    for path in folders:
        if not is_folder(path):
            raise EngineError(
                f"a step of {unit} replaced or removed /{path.name}, a folder of the system",
                hint="a package of the base does that: envbuild make NAME --engine embedded names the step that fails",
            )


@contextlib.contextmanager
def same_times(folders: Iterable[Path]) -> Iterator[None]:
    """Restore the times that folders had."""
    times = {path: path.lstat().st_mtime_ns for path in folders}
    yield
    for path, time in times.items():
        os.utime(path, ns=(time, time), follow_symlinks=False)


def remove_link(tree: Path) -> None:
    """Remove the link that a step of `envbuild.build.plan.own_hosts` restored."""
    path = tree / LINK
    if is_folder(path.parent) and path.is_symlink() and str(path.readlink()) == TARGET:
        with same_times([path.parent]):
            path.unlink()


def remove_entry(path: Path) -> None:
    """Remove a file or a folder."""
    if is_folder(path):
        remove_folder(path)
    else:
        path.unlink()


def layer_roles(
    history: Sequence[Mapping[str, Any]], layers: Sequence[str], roles: Sequence[str], unit: str
) -> Iterator[tuple[str, str]]:
    """Yield the role and the file of each layer; the file is empty for an instruction that changed nothing. Raises
    EngineError for an image of other instructions."""
    writers = [item for item in history if str(item.get("created_by", "")).startswith(WRITERS)]
    names = iter(layers)
    if len(writers) < len(roles) or sum(not item.get("empty_layer") for item in writers) > len(layers):
        raise EngineError(
            f"Docker made {len(layers)} layers of the {len(roles)} that the stage {unit} has",
            hint="this version of Docker is not known; report it: docker version",
        )
    for role, item in zip(roles, writers, strict=False):
        yield role, "" if item.get("empty_layer") else next(names)


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder, and not a link to one."""
    return os.path.lexists(path) and stat.S_ISDIR(path.lstat().st_mode)


def _read(saved: tarfile.TarFile, name: str) -> bytes:
    content = saved.extractfile(name)
    assert content is not None, name
    return content.read()
