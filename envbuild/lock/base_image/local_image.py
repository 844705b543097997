"""Base images on this machine: an archive or an OCI layout, whose parts are copied into the store.

The lock names a base image by the digest of its manifest. An archive of ``docker save`` has none, so one is made of its
configuration and layers (OCI image spec 1.1, manifest.md): the same image results in the same digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from envbuild.core.console import Reporter
from envbuild.core.distributions import LOCAL_FORMS, is_own_image
from envbuild.core.paths import expand_home
from envbuild.core.regular_file import open_regular
from envbuild.core.store.store import Store
from envbuild.core.text import amount
from envbuild.lock.base_image.own_images import OwnImages
from envbuild.net.registry.media_types import OCI
from envbuild.net.site import Site
from envbuild.oci.manifest import BlobDescriptor
from envbuild.oci.sources.base import SourceImage, SourceLayer
from envbuild.oci.sources.open import open_source
from envbuild.oci.sources.read_layer import corrupt_layer_error, read_layer
from envbuild.oci.tar.decompress import GZIP, ZSTD, convert_layer_errors

CHUNK = 1 << 20


def source_of(base: str, folder: Path) -> str:
    """Return the source (`envbuild.oci.sources.open`) of the base image `base`, whose relative paths begin in
    `folder`."""
    prefix = next((form for form in LOCAL_FORMS if base.startswith(form)), "")
    path = expand_home(base.removeprefix(prefix))
    return f"{prefix}{folder / path}"


def import_image(
    base: str, folder: Path, own: OwnImages, arch: str, site: Site, store: Store, reporter: Reporter
) -> str:
    """Copy the image `base` into the store. Return the digest (hex) of its manifest.

    Raises InputError if the image is missing or damaged, LockError if it is one of the project that is not built,
    ConflictError if it is one for another CPU architecture, EngineError if the store is full.
    """
    with contextlib.ExitStack() as stack:
        source = f"oci:{stack.enter_context(own.open(base))}" if is_own_image(base) else source_of(base, folder)
        image = stack.enter_context(open_source(source, site, store, arch))
        stack.enter_context(store.filled())
        reporter.start("base", f"copying {base} into the store: {len(image.layers)} layers")
        try:
            layers = _copy_layers(image, store, reporter)
        finally:
            reporter.finish("base")
        *manifests, configuration = image.documents
        config = _add_content(configuration, store)
        made = BlobDescriptor(config, len(configuration), OCI.config)
        return _add_content(manifests[0] if manifests else _make_manifest(made, layers), store)


def _copy_layers(image: SourceImage, store: Store, reporter: Reporter) -> list[BlobDescriptor]:
    """Copy the layers that the store lacks. Return all of them, bottom first."""
    found: dict[str, BlobDescriptor] = {}
    store.check_space((layer.digest or layer.diff_id, layer.size) for layer in image.layers if layer.size)
    with contextlib.ExitStack() as stack:
        layers: Iterator[SourceLayer] = stack.enter_context(image.stream()) if image.stream else iter(image.layers)
        for number, layer in enumerate(layers, 1):
            if layer.diff_id not in found:
                reporter.note("base", f"layer {number} of {len(image.layers)}, {amount(layer.size)}")
                found[layer.diff_id] = _copy_layer(layer, store)
    return [found[layer.diff_id] for layer in image.layers]


def _copy_layer(layer: SourceLayer, store: Store) -> BlobDescriptor:
    """Copy one layer into the store and check its digest."""
    expected = layer.digest or layer.diff_id
    if not store.has_blob(expected.removeprefix("sha256:"), layer.size):
        with store.workdir() as work:
            with convert_layer_errors(layer.name), layer.open() as stream, (work / "layer").open("xb") as file:
                while chunk := stream.read(CHUNK):
                    file.write(chunk)
            found = f"sha256:{_digest_of(work / 'layer', expected, layer)}"
            store.add_blob(work / "layer")
            expected = found
    pinned = store.pin_blob(expected.removeprefix("sha256:"))
    magic, size = os.pread(pinned.fd, 4, 0), os.fstat(pinned.fd).st_size
    if layer.size not in (0, size):
        raise corrupt_layer_error(layer, f"it has {size} bytes, and its image names {layer.size}")
    compression = "gzip" if magic.startswith(GZIP) else "zstd" if magic == ZSTD else "none"
    return BlobDescriptor(expected.removeprefix("sha256:"), size, OCI.layers[compression])


def _digest_of(path: Path, expected: str, layer: SourceLayer) -> str:
    """Return the digest (hex) of a layer's file. Raises InputError if neither the file nor its content, decompressed,
    has the digest that the image names."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if f"sha256:{found}" == expected:
        return found
    if layer.digest:
        raise corrupt_layer_error(layer, f"expected {expected}, got sha256:{found}")
    # an archive names the digest of the tar, and may have compressed it
    read_layer(replace(layer, size=path.stat().st_size, open=partial(open_regular, path, buffering=0)), [])
    return found


def _make_manifest(config: BlobDescriptor, layers: list[BlobDescriptor]) -> bytes:
    """Return the manifest of an image that has none."""

    def describe(part: BlobDescriptor) -> dict[str, object]:
        return {"mediaType": part.kind, "digest": f"sha256:{part.digest}", "size": part.size}

    value = {
        "schemaVersion": 2,
        "mediaType": OCI.manifest,
        "config": describe(config),
        "layers": [describe(layer) for layer in layers],
    }
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _add_content(content: bytes, store: Store) -> str:
    with store.workdir() as work:
        (work / "document").write_bytes(content)
        return store.add_blob(work / "document")
