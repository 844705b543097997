"""Layers whose blobs have the bytes of their packs, so that an image and its squashfs file travel as one.

Such a blob is a layer like any other (`envbuild.squashfs.pack.layer_frames`). What it lacks of the pack is published
beside it. layers/<hex>/shared.json of this user's store: the blob, the pack, and what the two share.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Self

from envbuild.core.errors import EngineError, EnvbuildError
from envbuild.core.regular_file import open_regular
from envbuild.core.store.json_files import read_sealed, write_sealed
from envbuild.core.store.store import LayerRecord, Store
from envbuild.oci.tar.compress import HashingWriter
from envbuild.publish.pack_blobs import SMALL, FileSlice, digest_parts, make_pack_blobs
from envbuild.publish.published_pack import MAX_SHARED, PublishedPack
from envbuild.squashfs.pack.file import Pack, read_pack
from envbuild.squashfs.pack.layer_frames import Shared, check_shared, shared_size, write_layer

NAME = "shared.json"
LEAST = 4 / 5  # of a pack: who needs the pack alone fetches what the layer compresses for itself, too


@dataclass(frozen=True, slots=True)
class SharedLayer:
    """The blob of a layer, whose file is missing where the target of the image has it, and the `parts` of the pack that
    it has."""

    blob: FileSlice
    parts: Sequence[Shared]


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
        path = self.packs[layer.diff_id]
        if path.stat().st_size < SMALL:  # joined with others
            return None
        known = read_shared(self.store, layer, path)
        pack = None if known else read_pack(path)
        if pack and shared_size(pack) < LEAST * path.stat().st_size:
            return None
        return PackEncoding(self, layer, path, f"zstd of {path.name}")

    def find(self, layers: Sequence[LayerRecord], blobs: Sequence[FileSlice]) -> dict[str, SharedLayer]:
        """Return the name of a pack → the blob of its layer that has bytes of it. `blobs`: of the `layers`; the file of
        one is missing where the target of the image has it. Beyond MAX_SHARED parts no more layers are returned: who
        pulls would refuse them."""
        found, left = {}, MAX_SHARED
        for layer, blob in zip(layers, blobs, strict=True):
            path = self.packs[layer.diff_id]
            known = read_shared(self.store, layer, path)
            parts = self.made.get(blob.digest) or (known[1] if known and known[0] == blob.digest else ())
            if parts and len(parts) <= left:
                found[path.name] = SharedLayer(blob, parts)
                left -= len(parts)
        return found


@dataclass(slots=True)
class PackEncoding:
    """The blob of a layer from its pack (`envbuild.oci.layout.Encoding`)."""

    layers: SharedLayers
    layer: LayerRecord
    path: Path
    name: str

    def write(self, out: HashingWriter) -> None:
        """Write the blob, and record what it shares with the pack. Raises EngineError for a damaged pack."""
        pack: Pack = read_pack(self.path)
        diff_id, parts = write_layer(pack, out)  # type: ignore[arg-type]  # only write() is used
        if diff_id != self.layer.diff_id:
            raise EngineError(
                f"corrupt pack in the store: expected {self.layer.diff_id}, got {diff_id}",
                hint="envbuild store check --repair",
                where=str(self.path),
            )
        self.layers.made[out.sha256] = parts
        record = {
            "blob": out.sha256,
            "pack": self.path.name,
            "size": out.size,
            "parts": list(chain.from_iterable(parts)),
        }
        with contextlib.suppress(OSError):  # a store that cannot be written: it is computed again
            write_sealed(self.layers.store.layer_path(self.layer.diff_id) / NAME, record)


def read_shared(store: Store, layer: LayerRecord, pack: Path) -> tuple[str, list[Shared]] | None:
    """Return the blob (hex) of a layer that was written from `pack`, and what the two share; None if there is none."""
    value = read_sealed(store.layer_path(layer.diff_id) / NAME)
    match value:
        case {"blob": str(blob), "pack": pack.name, "size": int(size), "parts": list(numbers)}:
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
    return blob, parts


def make_shared_blobs(
    packs: Sequence[Path],
    shared: Mapping[str, SharedLayer],
    work: Path,
    progress: Callable[[int], object] = lambda size: None,
) -> tuple[list[PublishedPack], list[FileSlice]]:
    """Return the packs as they are published, and their blobs, as `make_pack_blobs`; of packs that the blobs of their
    layers `shared` have (by the name of the pack), only the rest becomes blobs."""
    rests, folder = dict[Path, Path](), work / "rests"
    folder.mkdir()
    for path in packs:
        if path.name in shared and path not in rests:
            rests[path] = folder / path.name
            copy_rest(path, shared[path.name].parts, rests[path])
    published, blobs = make_pack_blobs([rests.get(path, path) for path in packs], work, progress)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        sizes = {path: path.stat().st_size for path in rests}
        wholes = pool.map(lambda path: digest_parts(path, sizes[path], progress)[0], rests)
        digests = dict(zip(rests, wholes, strict=True))
    found = []
    for path, pack in zip(packs, published, strict=True):
        if path in rests:
            blob, parts = shared[path.name].blob, shared[path.name].parts
            pack = PublishedPack.of_layer(pack.key, digests[path], sizes[path], pack.blobs, blob.digest, parts)
        found.append(pack)
    return found, blobs


def copy_rest(pack: Path, parts: Sequence[Shared], out: Path) -> None:
    """Write what a layer's blob lacks of a pack into the new file `out`. Raises DamagedPackError."""
    with open_regular(pack, follow=False) as source, out.open("xb") as file:
        for start, length in gaps(parts, source.seek(0, 2)):
            source.seek(start)
            while length and (chunk := source.read(min(length, 1 << 20))):
                file.write(chunk)
                length -= len(chunk)


def gaps(parts: Sequence[Shared], size: int) -> Iterator[tuple[int, int]]:
    """Yield (position, length) of what is between `parts` of a pack of `size` bytes."""
    at = 0
    for part in parts:
        if part.pack > at:
            yield at, part.pack - at
        at = part.pack + part.length
    if at < size:
        yield at, size - at
