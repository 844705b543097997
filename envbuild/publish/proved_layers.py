"""Layers of a third-party image of which the store has a pack: they are read before the pack is published.

The configuration of an image names its layers by their digest, which is public: an image that names the layers of a
private one would be published with the private files, from the store or by a registry that has their blobs. So the
source must show that it has every byte: its blobs are read, once for each repository, and compared with the layers. A
blob that this user made of the layer, or compared with it before, is not unpacked again: its own digest is compared.

published/proved.json of the user's part of the store: repository, a blank, and blob (``sha256:…``) → layer
(``sha256:…``), the newest last; of `prove_blobs` with the compression behind the repository.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import IO

from envbuild.core.byte_progress import count_bytes
from envbuild.core.console import Reporter
from envbuild.core.errors import Finding, InputError
from envbuild.core.store.json_files import read_sealed, write_sealed
from envbuild.core.store.store import Store
from envbuild.core.text import counted
from envbuild.oci.layers.compressed import DIGEST, is_compressed_layer
from envbuild.oci.sources.base import SourceImage, SourceLayer
from envbuild.oci.sources.read_layer import corrupt_layer_error, read_blob, read_layer, read_unnamed_layer
from envbuild.publish.known_repositories import FOLDER
from envbuild.publish.one_reading import OneReading, compression_of_kind
from envbuild.squashfs.pack.format import PackFormat
from envbuild.squashfs.pack.store_packs import pack_path

MOST = 20_000  # layers in the record: 3 MB
TASK = "proof"
PARALLEL = 3  # layers that are read at a time


def prove_layers(
    image: SourceImage,
    provider: str,
    form: PackFormat,
    store: Store,
    reporter: Reporter,
    read: Iterable[SourceLayer] = (),
) -> list[SourceLayer]:
    """Read the layers of an image whose packs the store has, but for those whose blob was compared before. Return
    those that were read.

    provider: the repository of the image; empty for an image on this machine, whose content may change
    read: those that this command has read already

    Raises InputError for a layer that is not the one that the configuration names.
    """
    known, wanted = read_proved(store), {}
    done = {(layer.diff_id, layer.digest) for layer in read}
    blobs: dict[str, set[str]] = {}
    for layer in image.layers:
        blobs.setdefault(layer.diff_id, set()).add(layer.digest)
    for layer in image.layers:
        # of several blobs that are listed for one layer the conversion reads one
        unread = len(blobs[layer.diff_id]) > 1 or pack_path(store, layer.diff_id, form).is_file()
        row = row_of(provider, layer)
        proved = (layer.diff_id, layer.digest) in done or (row and known.get(row) == layer.diff_id)
        if unread and not proved:
            wanted[layer.diff_id, layer.digest] = layer
    if not wanted:
        return []
    reporter.start(TASK, f"comparing {counted(len(wanted), 'layer')} with the packs of the store")
    try:
        blobs_known = {(layer, row.rpartition(" ")[2]) for row, layer in known.items()}
        read_all(image, list(wanted.values()), lambda layer: is_known(layer, blobs_known, store))
    finally:
        reporter.finish(TASK)
    return list(wanted.values())


def prove_blobs(image: SourceImage, kinds: Mapping[str, str], provider: str, store: Store, reporter: Reporter) -> None:
    """Read the blobs of an image in the repository `provider` that are not known to be its layers: a manifest can list
    others beside the configuration, which enroot does not compare. `kinds`: the media types of the blobs (``sha256:…``)
    in the manifest. Raises InputError for one that is not its layer, or not for all programs
    (`envbuild.publish.one_reading`)."""
    known, compressions = read_proved(store), {digest: compression_of_kind(kind) for digest, kind in kinds.items()}

    def place(layer: SourceLayer) -> str:  # in a row of the record: what it is compared as
        return f"{provider} {compressions.get(layer.digest, '')}"

    def is_layer(layer: SourceLayer) -> bool:
        return (
            layer.digest == layer.diff_id
            or known.get(row_of(place(layer), layer)) == layer.diff_id
            or is_compressed_layer(store, layer.diff_id, layer.digest)
        )

    if not (unread := [layer for layer in image.layers if not is_layer(layer)]):
        return
    for layer in unread:
        if not compressions.get(layer.digest):
            kind = kinds.get(layer.digest, "")[:100]
            raise corrupt_layer_error(layer, f"it is not the tar that its media type states: {kind!a}")
    reporter.start(TASK, f"comparing {counted(len(unread), 'published layer')} with the image")
    add = count_bytes(reporter, TASK, sum(layer.size for layer in unread))
    try:
        read_all(image, [in_one_reading(layer, compressions[layer.digest], add) for layer in unread], lambda _: False)
    finally:
        reporter.finish(TASK)
    for layer in unread:
        record_proved(store, place(layer), [layer])


def in_one_reading(layer: SourceLayer, compression: str, add: Callable[[int], object]) -> SourceLayer:
    """Return a layer whose blob is read as `OneReading` reads it."""

    @contextlib.contextmanager
    def open_blob() -> Iterator[IO[bytes]]:
        with layer.open() as stream:
            yield OneReading(stream, compression, add)  # type: ignore[misc]

    return replace(layer, open=open_blob)


def is_known(layer: SourceLayer, known: Container[tuple[str, str]], store: Store) -> bool:
    """Return whether the content of the layer's blob is known by the digest of the blob."""
    return bool(layer.digest) and (
        (layer.diff_id, layer.digest) in known or is_compressed_layer(store, layer.diff_id, layer.digest)
    )


def read_all(image: SourceImage, wanted: Sequence[SourceLayer], known: Callable[[SourceLayer], bool]) -> None:
    """Read layers and compare their digests; of `known` ones those of their blobs. Raises InputError with a finding for
    each that differs."""
    if image.stream is None:
        findings: list[Finding] = []
        with ThreadPoolExecutor(min(PARALLEL, len(wanted))) as pool:
            for error in pool.map(lambda layer: fault_of(layer, read_blob if known(layer) else read_whole), wanted):
                findings += error.findings if error else ()
        if findings:
            raise InputError.of(findings)
        return
    left = {layer.diff_id: layer for layer in wanted}
    with image.stream() as layers:
        for layer in layers:
            if layer.diff_id in left:
                read_layer(replace(layer, places=1), [])
                del left[layer.diff_id]
            elif not layer.diff_id:
                left.pop(read_unnamed_layer(layer), None)
    for layer in left.values():
        raise corrupt_layer_error(layer, "the archive came without it")


def read_whole(layer: SourceLayer) -> None:
    """Read a layer, unpacked, and compare its digests. Raises InputError."""
    read_layer(layer, [])


def fault_of(layer: SourceLayer, read: Callable[[SourceLayer], object]) -> InputError | None:
    """Return why a layer is not the one that its image names; None if one of its places provides it."""
    fault = None
    for _ in range(layer.places):
        try:
            read(layer)
        except InputError as error:
            fault = error
        else:
            return None
    return fault


def read_proved(store: Store) -> dict[str, str]:
    """Return the layer of each blob of a repository that was compared with it."""
    value = read_sealed(store.own / FOLDER / "proved.json")
    found = value.get("blobs") if isinstance(value, dict) else None
    rows = found.items() if isinstance(found, dict) else ()
    return {blob: layer for blob, layer in rows if isinstance(layer, str) and DIGEST.fullmatch(layer)}


def row_of(provider: str, layer: SourceLayer) -> str:
    """Return the name of a row; empty for a layer that is read each time."""
    return f"{provider} {layer.digest}" if provider and layer.digest else ""


def record_proved(store: Store, provider: str, layers: Iterable[SourceLayer]) -> None:
    """Record the blobs of layers that were read; in a store that cannot be written nothing is recorded."""
    new = {row: layer.diff_id for layer in layers if (row := row_of(provider, layer))}
    with contextlib.suppress(OSError):
        store.own_folder(FOLDER)
        rows = {blob: layer for blob, layer in read_proved(store).items() if blob not in new} | new
        write_sealed(store.own / FOLDER / "proved.json", {"blobs": dict(list(rows.items())[-MOST:])})
