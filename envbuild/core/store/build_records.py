"""Records of what was built: layers, the products of units, and layers that a group shares.

A record is read from a file that another user or an older envbuild may have written: any other value reads as no
record.
"""

from __future__ import annotations

import dataclasses
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envbuild.core.regular_file import mode_at
from envbuild.core.store.json_files import read_sealed, write_sealed
from envbuild.core.store.tree_folder import TreeFolder, parse_tree_folder

LONGEST = 10 * 365 * 86_400  # seconds of a build
PACK_VERSION = 3  # raise it when the bytes of a pack, or their meaning, change
DIFF_ID = re.compile("sha256:[0-9a-f]{64}")
HEX = re.compile("[0-9a-f]{64}")
PACK_NAME = re.compile(r"[0-9a-f]{64}\.[A-Za-z0-9.+_-]{1,150}")
# The name of a file that a unit may leave: never a path (PyPA, "Binary distribution format": file name convention).
WHEEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,200}\.whl")


@dataclass(frozen=True, slots=True)
class LayerRecord:
    """A layer in the store. `diff_id` is ``sha256:<hex>`` of its canonical tar, `size` the length of that tar in
    bytes. `caches`: the cache that described the folders of its tree that are not members; none: it was built here.
    `built_with`: the caches of which units were taken that it was built with."""

    diff_id: str
    size: int
    files: int
    unit: str = ""
    caches: tuple[str, ...] = ()
    built_with: tuple[str, ...] = ()

    @property
    def all_caches(self) -> tuple[str, ...]:
        """Return the caches by which what the layer contains was decided."""
        return (*self.caches, *self.built_with)

    @property
    def hex(self) -> str:
        return self.diff_id.removeprefix("sha256:")

    @classmethod
    def parse(cls, value: Any) -> LayerRecord | None:
        """Return the record in a JSON value; None if it is not one."""
        try:
            names = {field: value.get(field, []) for field in ("caches", "built_with")}
            found = cls(**{**value, **{field: tuple(caches) for field, caches in names.items()}})
        except (AttributeError, TypeError):
            return None
        for caches in names.values():
            if not isinstance(caches, (list, tuple)) or not all(isinstance(cache, str) for cache in caches):
                return None
        kinds = (found.diff_id, str), (found.size, int), (found.files, int), (found.unit, str)
        return (
            found if all(isinstance(item, kind) for item, kind in kinds) and DIFF_ID.fullmatch(found.diff_id) else None
        )


@dataclass(frozen=True, slots=True)
class UnitRecord:
    """The product of a unit: a layer, or wheels as (file name, sha256).

    `seconds` is the wall time of its build; `box`: protection → whether it was in force while its steps ran (empty:
    another engine built it, it has no steps, or the record is of an envbuild that did not write this).
    `source`: the entry of a cache that it was taken from (empty: it was built in this store); `caches`: all caches of
    which it, or a unit below it, was taken.
    """

    key: str
    unit: str
    layer: LayerRecord | None = None
    wheels: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    box: Mapping[str, bool] = field(default_factory=dict, hash=False)
    source: str = ""
    caches: tuple[str, ...] = ()

    @property
    def product(self) -> str:
        """Return the kind of the product."""
        return "layer" if self.layer else "wheel"

    @classmethod
    def parse(cls, value: Any) -> UnitRecord | None:
        """Return the record in a JSON value; None if it is not one."""
        try:
            layer = LayerRecord.parse(value["layer"]) if value["layer"] else None
            wheels = tuple((name, sha256) for name, sha256 in value["wheels"])
            box = {str(name): state is True for name, state in value.get("box", {}).items()}
            caches = value.get("caches", [])
            source = value.get("source", "")
            found = cls(value["key"], value["unit"], layer, wheels, float(value["seconds"]), box, source, tuple(caches))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            return None
        names = (found.key, found.unit, source, *caches, *(part for wheel in wheels for part in wheel))
        whole = isinstance(caches, list) and all(isinstance(name, str) for name in names)
        whole = whole and (layer is not None or not value["layer"]) and 0 <= found.seconds < LONGEST
        return found if whole and all(WHEEL_NAME.fullmatch(n) and HEX.fullmatch(s) for n, s in wheels) else None


@dataclass(frozen=True, slots=True)
class SharedLayer:
    """A layer whose pack is for all users of a shared store, and of this format: each release reads one alone, and the
    members of a group may have several.

    pack: the file name of the pack. folders: those of the tree that are not members of the layer.
    """

    record: LayerRecord
    pack: str
    folders: tuple[TreeFolder, ...] = ()

    @classmethod
    def read(cls, packs: Path, diff_id: str) -> SharedLayer | None:
        """Return the shared layer `diff_id` in the folder `packs`; None if there is none, or its pack is missing or of
        another format."""
        value = read_sealed(shared_layer_path(packs, diff_id))
        try:
            record = LayerRecord.parse(value["layer"])
            folders = tuple(map(parse_tree_folder, value["folders"]))
            found = cls(record, str(value["pack"]), folders) if record and record.diff_id == diff_id else None
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            return None
        if found is None or not found.pack.startswith(found.record.hex) or not PACK_NAME.fullmatch(found.pack):
            return None
        if not found.pack.endswith(f".v{PACK_VERSION}"):
            return None
        return found if stat.S_ISREG(mode_at(packs / found.pack)) else None

    def write(self, packs: Path) -> None:
        """Write the record; the pack must be in the store."""
        value = {"layer": dataclasses.asdict(self.record), "pack": self.pack, "folders": self.folders}
        write_sealed(shared_layer_path(packs, self.record.diff_id), value)


def shared_layer_path(packs: Path, diff_id: str) -> Path:
    """Return the file with the record of a layer that others can unpack from its pack."""
    return packs / f"{diff_id.removeprefix('sha256:')}.v{PACK_VERSION}.layer.json"
