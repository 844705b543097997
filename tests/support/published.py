"""Images of a few layers, published with their squashfs file from one store, and pulled into another."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from envbuild.core.console import SilentReporter
from envbuild.export.options import ExportOptions
from envbuild.export.output_path import Output
from envbuild.export.pack_layers import foreign_evidence
from envbuild.export.squashfs_image import plan_squashfs
from envbuild.net.registry.reference import parse_reference
from envbuild.net.site import Site
from envbuild.oci.sources.open import open_source
from envbuild.publish.binding import make_annotations
from envbuild.publish.finished_image import FinishedImage
from envbuild.publish.folder import publish_to_folder
from envbuild.publish.image_parts import ImageParts
from envbuild.publish.published_texts import PublishedText
from envbuild.publish.pull import pull_image
from envbuild.publish.registry import Published, open_push, publish_to_registry
from envbuild.publish.squashfs_artifact import Artifact, finished_artifacts
from envbuild.squashfs.pack.store_packs import pack_path
from tests.support import foreign_images
from tests.support.local_registry import Layout


def built(
    folder: Path,
    contents: Sequence[bytes],
    *,
    whole: bool = False,
    bound: bool = True,
    texts: Sequence[PublishedText] = (),
    change: Callable[[Path], object] | None = None,
    **changes: Any,
) -> tuple[ImageParts, list[Artifact], str]:
    """Return an image of layers (tars), its artifacts and the sha256 of its squashfs file, written in `folder`.

    `texts` are published with it; `bound`: its manifest names its squashfs file; `change` changes
    that before it is published; `changes`: of its configuration."""
    layout = Layout(folder / "layout")
    layout.add(foreign_images.image(layout, contents, **changes), "x")
    parts = ImageParts.read(folder / "layout")
    at = foreign_images.workspace(folder / "store")
    source = f"oci:{folder}/layout:x"
    done = foreign_images.made(source, at, folder / "image.sqsh")
    options = ExportOptions(sha256=True)
    with open_source(source, at.site, at.store) as image:
        packs = [pack_path(at.store, layer.diff_id, options.pack_format) for layer in image.layers]
        config, evidence, epoch = image.config, foreign_evidence(image), image.created
    path = done.artifact.path
    ranges = plan_squashfs(packs, config, path, options, epoch=epoch, evidence=evidence, foreign=True)
    finished = FinishedImage("app", "amd64", path, done.artifact.sha256, packs, ranges, {})
    work = folder / "work"
    work.mkdir()
    if bound:
        parts = parts.annotate(make_annotations(finished.sha256, texts))
    if change:
        change(path)
    artifacts = finished_artifacts(finished, parts.subject, SilentReporter(), work, texts, whole=whole)
    return parts, artifacts, done.artifact.sha256


def publish(parts: ImageParts, artifacts: Sequence[Artifact], name: str, *, move: bool = False) -> Published:
    """Publish to a registry, without long pauses."""
    found = parse_reference(name)
    push = open_push(found, Site(Path("/")), 0.01)
    return publish_to_registry(parts, found, push, SilentReporter(), move=move, artifacts=artifacts)


def publish_folder(parts: ImageParts, artifacts: Sequence[Artifact], folder: Path, tag: str) -> tuple[int, int]:
    """Publish to a layout."""
    return publish_to_folder(parts, folder, tag, move=True, report=print, artifacts=artifacts)


def pull(name: str, store: Path, out: Path | None = None, **mirrors: str) -> dict[str, Any]:
    """Pull into a store, which need not exist; return the answer."""
    at = foreign_images.workspace(store, **mirrors)
    return dict(pull_image(name, Output(out) if out else None, at).data)


def document(artifact: Artifact) -> dict[str, Any]:
    """Return the document of an artifact's squashfs file."""
    layer = json.loads(artifact.manifest)["layers"][0]
    blob = next(blob for blob in artifact.blobs if f"sha256:{blob.digest}" == layer["digest"])
    return dict(json.loads(blob.path.read_bytes()))
