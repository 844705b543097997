"""A third-party image as it is published: an OCI image with the blobs of its source, which names its squashfs file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from envbuild.core.json_text import canonical_json
from envbuild.net.registry.media_types import OCI
from envbuild.oci import manifest as m
from envbuild.oci.document import Part
from envbuild.oci.manifest import BlobDescriptor
from envbuild.oci.sources.base import SourceImage
from envbuild.publish.compressed_layers import compress_layers
from envbuild.publish.image_parts import BlobContent, ImageParts
from envbuild.publish.layer_blob import LayerBlob
from envbuild.publish.pack_blobs import FileSlice
from envbuild.spec.workspace import Workspace

OWN = "io.envbuild."  # annotations of an image that envbuild published: of another squashfs file
USUAL = "gzip"  # of layers that the source has not compressed


def source_parts(
    image: SourceImage,
    annotations: Mapping[str, str],
    compression: str,
    workspace: Workspace,
    work: Path,
    present: Callable[[str, int], bool],
) -> ImageParts:
    """Return an open image as an OCI image with `annotations`; its configuration remains the same.

    `compression`: of all layers; empty: each layer has the blob that the source has, and one without a blob of its own
    is compressed. Files are written into `work`. `present`: whether the target has a blob (``sha256:…``, bytes).

    Raises InputError for a damaged layer, EngineError if the store is full.
    """
    *manifests, configuration = image.documents
    manifest: dict[str, Any] = json.loads(manifests[0]) if manifests else {}
    listed = manifest.get("layers", [{}] * len(image.layers))
    kinds = [compression_of(item.get("mediaType", "")) for item in listed]
    kept = [
        bool(layer.digest) and image.stream is None and compression in ("", kind)
        for layer, kind in zip(image.layers, kinds, strict=True)
    ]
    wanted = [layer for layer, keep in zip(image.layers, kept, strict=True) if not keep]
    if wanted:
        workspace.reporter.start("oci", f"compressing {len(wanted)} layers ({compression or USUAL})")
    try:
        made = compress_layers(image, wanted, compression or USUAL, work, workspace.store, present)
    finally:
        workspace.reporter.finish("oci")
    config = write_configuration(configuration, work)
    entries, contents = [], dict[str, BlobContent]({config.digest: config})
    for layer, item, kind, keep in zip(image.layers, listed, kinds, kept, strict=True):
        if keep:
            blob = LayerBlob(layer)
            contents[blob.digest] = blob
            entries.append(describe(OCI.layers[kind], blob.digest, blob.size, texts_of(item.get("annotations"))))
            continue
        new = made[layer.diff_id]
        if new.file:
            contents[new.digest] = new.file
        entries.append(describe(OCI.layers[compression or USUAL], new.digest, new.size))
    content = canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": OCI.manifest,
            "config": describe(OCI.config, config.digest, config.size),
            "layers": entries,
            "annotations": {
                **{key: text for key, text in texts_of(manifest.get("annotations")).items() if not key.startswith(OWN)},
                **annotations,
            },
        }
    )
    blobs = {item.digest: item for item in (m.parse_descriptor(Part(entry)) for entry in entries)}
    parts = (BlobDescriptor(config.digest, config.size, OCI.config), *blobs.values())
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return ImageParts(content, OCI.manifest, digest, parts, tuple(contents.values()), platform_of(configuration))


def write_configuration(content: bytes, work: Path) -> FileSlice:
    """Write the configuration of an image into `work`; return it."""
    path = work / "configuration"
    path.write_bytes(content)
    return FileSlice(hashlib.sha256(content).hexdigest(), len(content), path)


def platform_of(configuration: bytes) -> dict[str, str]:
    """Return the platform that an index has for the image of a configuration."""
    value = json.loads(configuration)
    return {key: value[key] for key in ("architecture", "os", "variant") if value.get(key)}


def compression_of(kind: str) -> str:
    """Return the compression of a layer, by its media type: Docker's or OCI's."""
    return next((name for name in ("gzip", "zstd") if kind.endswith(name)), "none")


def describe(kind: str, digest: str, size: int, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a descriptor; `digest` is bare hex."""
    found = {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}
    return {**found, "annotations": dict(annotations)} if annotations else found


def texts_of(value: object) -> dict[str, str]:
    """Return the annotations of a document of a third party that are texts."""
    return {key: text for key, text in value.items() if isinstance(text, str)} if isinstance(value, dict) else {}
