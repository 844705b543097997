"""Layers whose blobs have the bytes of their packs, so that an image and its squashfs file travel as one.

Such a blob is a layer like any other (`envbuild.squashfs.pack.layer_frames`). What it lacks of the pack is published
beside it (`envbuild.publish.shared_pack_blobs`). layers/<hex>/shared.json of this user's store: the blob, the pack, and
what the two share.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Self

from envbuild.core.errors import DamagedPackError, EnvbuildError
from envbuild.core.store.json_files import read_sealed, write_sealed
from envbuild.core.store.store import LayerRecord, Store
from envbuild.export.options import ExportOptions
from envbuild.export.project_image import pack_layers
from envbuild.oci.tar.compress import HashingWriter
from envbuild.publish.pack_blobs import MOST, SMALL, FileSlice
from envbuild.publish.published_pack import MAX_SHARED
from envbuild.publish.shared_pack_blobs import SharedLayer
from envbuild.squashfs.pack.file import DAMAGED_HINT, MALFORMED, read_pack
from envbuild.squashfs.pack.frame_writer import Shared, check_shared
from envbuild.squashfs.pack.layer_frames import shared_size, write_layer

if TYPE_CHECKING:
    from envbuild.export.built_image import BuiltImage
    from envbuild.spec.workspace import Workspace

NAME = "shared.json"
MAX_LAYERS = MOST // 2  # of an artifact: each is one blob more, and in most cases what it lacks another one
LEAST = 4 / 5  # of a pack that its layer has
LARGEST = 5 / 4  # of a pack, the blob of its layer: who needs the pack alone fetches what the layer has for itself, too


def share_layers(image: BuiltImage, compression: str, workspace: Workspace) -> SharedLayers:
    """Return the layers of an image of the project that `compression` lets share bytes with their packs, of which
    missing ones are written: none but with zstd."""
    if compression != "zstd":
        return SharedLayers(workspace.store, {})
    return SharedLayers.of(image.layers, built_packs(image, workspace), workspace.store)


def built_packs(image: BuiltImage, workspace: Workspace) -> list[Path]:
    """Return the packs of an image of the project; write those that are missing."""
    path, options = Path(image.record.artifact), ExportOptions(sha256=True)
    return pack_layers(image.layers, workspace.store, workspace.reporter, path, options)


@dataclass(slots=True)
class SharedLayers:
    """The layers of one image. `packs`: by diff_id. `made`: what this command wrote, by the blob of the layer (hex)."""

    store: Store
    packs: Mapping[str, Path]
    made: dict[str, Sequence[Shared]] = field(default_factory=dict)

    @classmethod
    def of(cls, layers: Sequence[LayerRecord], packs: Sequence[Path], store: Store) -> Self:
        """Return the `layers` of an image, which have these packs."""
        return cls(store, {layer.diff_id: pack for layer, pack in zip(layers, packs, strict=True)})

    def encode(self, layer: LayerRecord) -> PackEncoding | None:
        """Return how the blob of a layer is written from its pack; None where it would have too little of that."""
        path = self.packs.get(layer.diff_id)
        if path is None or path.stat().st_size < SMALL:  # joined with others
            return None
        known = read_shared(self.store, layer, path)
        pack = None if known else read_pack(path)
        if pack and shared_size(pack) < LEAST * path.stat().st_size:
            return None
        return PackEncoding(self, layer, path, f"zstd of {path.name}")

    def find(self, layers: Sequence[LayerRecord], blobs: Sequence[FileSlice]) -> dict[str, SharedLayer]:
        """Return the name of a pack → the blob of its layer that has bytes of it. `blobs`: of the `layers`; the file of
        one is missing where the target of the image has it.

        Of many layers only the largest MAX_LAYERS are returned, and no more beyond MAX_SHARED parts: who pulls would
        refuse them. A blob that is much larger than its pack is not returned."""
        found, left = dict[str, SharedLayer](), MAX_SHARED
        for layer, blob in sorted(zip(layers, blobs, strict=True), key=lambda pair: -pair[1].size):
            path = self.packs.get(layer.diff_id)
            if path is None or path.name in found or len(found) == MAX_LAYERS:  # the layer comes twice
                continue
            if blob.size > LARGEST * path.stat().st_size:
                continue
            known = read_shared(self.store, layer, path)
            if parts := self.made.get(blob.digest):
                made = SharedLayer(blob, parts, record=partial(write_shared, self.store, layer, path.name, blob, parts))
            elif known and known.blob == blob.digest:
                made = SharedLayer(blob, known.parts, known.sha256)
            else:
                continue
            if len(made.parts) <= left:
                found[path.name] = made
                left -= len(made.parts)
        return found


@dataclass(slots=True)
class PackEncoding:
    """The blob of a layer from its pack (`envbuild.oci.layout.Encoding`)."""

    layers: SharedLayers
    layer: LayerRecord
    path: Path
    name: str

    def write(self, out: HashingWriter) -> None:
        """Write the blob. Raises DamagedPackError."""
        try:
            diff_id, parts = write_layer(read_pack(self.path), out)  # type: ignore[arg-type]  # only write() is used
        except DamagedPackError:
            raise
        except (*MALFORMED, EnvbuildError) as error:
            raise DamagedPackError(f"the pack is damaged: {error}", DAMAGED_HINT, str(self.path)) from error
        if diff_id != self.layer.diff_id:
            why = f"it is of the layer {diff_id} instead of {self.layer.diff_id}"
            raise DamagedPackError(f"the pack is damaged: {why}", DAMAGED_HINT, str(self.path))
        self.layers.made[out.sha256] = parts


@dataclass(frozen=True, slots=True)
class SharedRecord:
    """The record of a layer: its blob (hex), the `sha256` of the pack that it was written from, and the `parts` of that
    which it has."""

    blob: str
    sha256: str
    parts: Sequence[Shared]


def write_shared(
    store: Store, layer: LayerRecord, pack: str, blob: FileSlice, parts: Sequence[Shared], sha256: str
) -> None:
    """Record the blob of a layer, which has `parts` of the pack of that name and `sha256`; in a store that cannot be
    written nothing is recorded."""
    value = {"blob": blob.digest, "size": blob.size, "pack": pack, "sha256": sha256, "parts": list(chain(*parts))}
    with contextlib.suppress(OSError):
        write_sealed(store.layer_path(layer.diff_id) / NAME, value)


def read_shared(store: Store, layer: LayerRecord, pack: Path) -> SharedRecord | None:
    """Return what is recorded of the blob that was written from the `pack` of a layer, of this name; None if there is
    nothing."""
    value = read_sealed(store.layer_path(layer.diff_id) / NAME)
    match value:
        case {"blob": str(blob), "size": int(size), "pack": pack.name, "sha256": str(sha256), "parts": list(numbers)}:
            pass
        case _:
            return None
    if len(numbers) % 3 or any(type(number) is not int for number in numbers):
        return None
    parts = [Shared(*numbers[at : at + 3]) for at in range(0, len(numbers), 3)]
    try:
        check_shared(parts, pack.stat().st_size, size)
    except EnvbuildError:
        return None
    return SharedRecord(blob, sha256, parts)
