"""Layers of a third-party image that are compressed to be published: those of ``docker save`` are not, in its archive.

published/layers.json of the user's part of the store: the layer and its compression → the blob that it became. A target
that has this blob needs no other one, so that the layer is not compressed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from envbuild.core import signals
from envbuild.core.errors import EngineError
from envbuild.core.store.json_files import read_sealed, write_sealed
from envbuild.core.store.store import Store
from envbuild.oci.layers.compressed import DIGEST
from envbuild.oci.sources.base import SourceImage, SourceLayer
from envbuild.oci.sources.read_layer import corrupt_layer_error
from envbuild.oci.tar.compress import HashingWriter, open_compressor
from envbuild.oci.tar.decompress import convert_layer_errors
from envbuild.oci.tar.unpack_limit import open_limited
from envbuild.publish.known_repositories import FOLDER
from envbuild.publish.pack_blobs import FileSlice

MOST = 20_000  # layers in the record: 4 MB
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class CompressedLayer:
    """The blob of a layer: digest (hex) and size; `file`: None where the target has it."""

    digest: str
    size: int
    file: FileSlice | None


def compress_layers(
    image: SourceImage,
    layers: Sequence[SourceLayer],
    compression: str,
    work: Path,
    store: Store,
    present: Callable[[str, int], bool],
) -> dict[str, CompressedLayer]:
    """Return diff_id → blob of some `layers` of an image; files are written into `work`.

    `present`: whether the target has a blob (``sha256:…``, bytes). Raises InputError for a layer that is damaged,
    EngineError if the store is full.
    """
    wanted = {layer.diff_id: layer for layer in layers}
    known = read_known(store)
    found: dict[str, CompressedLayer] = {}
    for diff_id in wanted:
        digest, size = known.get(f"{diff_id} {compression}", ("", 0))
        if digest and present(digest, size):
            found[diff_id] = CompressedLayer(digest.removeprefix("sha256:"), size, None)
    missing = [layer for diff_id, layer in wanted.items() if diff_id not in found]
    if missing:
        with store.filled():
            made = compress_missing(image, missing, compression, work)
        found.update(made)
        record_known(
            store,
            {f"{diff_id} {compression}": (f"sha256:{layer.digest}", layer.size) for diff_id, layer in made.items()},
        )
    return found


def compress_missing(
    image: SourceImage, missing: Sequence[SourceLayer], compression: str, work: Path
) -> dict[str, CompressedLayer]:
    """Compress layers: several at a time, or in the order of a source that has an order of its own."""
    cores = len(os.sched_getaffinity(0))
    if image.stream is None:
        together = max(1, min(cores, len(missing)))
        with ThreadPoolExecutor(together) as pool:
            threads = max(1, cores // together)
            made = pool.map(lambda layer: compress_layer(layer, compression, work, threads), missing)
            return {layer.diff_id: blob for layer, blob in zip(missing, made, strict=True)}
    found: dict[str, CompressedLayer] = {}
    wanted = {layer.diff_id for layer in missing}
    with image.stream() as layers:
        for layer in layers:
            if layer.diff_id in wanted and layer.diff_id not in found:
                found[layer.diff_id] = compress_layer(layer, compression, work, cores)
    for layer in missing:
        if layer.diff_id not in found:
            raise corrupt_layer_error(layer, "the archive came without it")
    return found


def compress_layer(layer: SourceLayer, compression: str, work: Path, threads: int) -> CompressedLayer:
    """Write the content of a layer, compressed, into `work`. Raises InputError unless it has the layer's diff_id."""
    path, tar = work / layer.diff_id.removeprefix("sha256:"), hashlib.sha256()
    with convert_layer_errors(layer.name), layer.open() as stream, path.open("xb") as file:
        measured = HashingWriter(file)
        with open_limited(stream, layer.size) as content, open_compressor(measured, compression, threads) as out:
            while chunk := content.read(CHUNK):
                if signals.number():
                    raise EngineError("stopped")
                tar.update(chunk)
                out.write(chunk)
    if (found := f"sha256:{tar.hexdigest()}") != layer.diff_id:
        raise corrupt_layer_error(layer, f"expected {layer.diff_id}, got {found}")
    return CompressedLayer(measured.sha256, measured.size, FileSlice(measured.sha256, measured.size, path))


def read_known(store: Store) -> dict[str, tuple[str, int]]:
    """Return the blobs that layers became, by diff_id and compression."""
    value = read_sealed(store.own / FOLDER / "layers.json")
    found = value.get("layers") if isinstance(value, dict) else None
    return dict(_whole_rows(found)) if isinstance(found, dict) else {}


def _whole_rows(rows: dict[str, object]) -> Iterator[tuple[str, tuple[str, int]]]:
    for key, row in rows.items():
        match row:
            case [str(digest), int(size)] if DIGEST.fullmatch(digest) and size >= 0:
                yield key, (digest, size)


def record_known(store: Store, made: dict[str, tuple[str, int]]) -> None:
    """Record blobs; in a store that cannot be written nothing is recorded."""
    with contextlib.suppress(OSError):
        store.own_folder(FOLDER)
        rows = {key: row for key, row in read_known(store).items() if key not in made} | made
        write_sealed(store.own / FOLDER / "layers.json", {"layers": dict(list(rows.items())[-MOST:])})
