"""``envbuild verify NAME|FILE|REF --rebuild``: claim → project → temporary store → build → comparison.

No unit, layer or pack of an earlier build is used, of this store or of a cache, nor a step that an engine has cached.
The store has the inputs, and gets those that are fetched; each is compared with its digest in the lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.build.engines.base import BuildOptions, BuildResult
from envbuild.core.result import Result
from envbuild.export.built_image import BuiltImage, ImageRecord
from envbuild.export.built_layout import open_built_layout, own_images
from envbuild.export.project_image import image_evidence
from envbuild.lock.fetch import fetch
from envbuild.lock.model import lock_digest
from envbuild.make import LockRule, Options, ReadyImage, build_and_write, prepare
from envbuild.oci import manifest as m
from envbuild.oci.document import Part as Document
from envbuild.publish.binding import make_annotations
from envbuild.publish.image_parts import ImageParts
from envbuild.publish.published_texts import list_texts
from envbuild.publish.rebuild.claim import Claim, read_claim
from envbuild.publish.rebuild.comparison import Part, compare_blobs, compare_layers, find_first
from envbuild.publish.rebuild.rebuild_document import rebuild_document, rebuild_text
from envbuild.publish.rebuild.rebuild_project import open_rebuild
from envbuild.publish.rebuild.temporary_store import link_inputs, open_temporary_store
from envbuild.publish.remote_image import open_remote
from envbuild.publish.shared_layers import share_layers
from envbuild.publish.source_parts import compression_of
from envbuild.publish.squashfs_artifact import lone_digest
from envbuild.spec.workspace import Workspace

if TYPE_CHECKING:
    from envbuild.export.project_image import SquashfsFile


def rebuild_image(name: str, workspace: Workspace, engine: str = "", platform: str = "") -> Result:
    """Build an image again from its lock and compare all bytes; ``data["equal"]`` is whether they are the same.

    name: of an image of the project that is built, of a squashfs file, or of a published image. engine: empty: the one
    that built the image, else that of the site.

    Raises LockError for an image without a lock, and what the steps of `envbuild.make.make` raise.
    """
    claim = read_claim(name, workspace, platform)
    with workspace.store.workdir() as work, open_temporary_store(workspace.store) as store:
        (work / "project").mkdir()
        spec, project = open_rebuild(claim, workspace, work / "project")
        site = replace(workspace.site, caches=(), compiler_cache=False)
        at = replace(workspace, project=project, site=site, store=store)
        options = Options(
            engine or claim.engine, BuildOptions(rebuild=True), verify=False, caches=(), lock=LockRule.PRESENT
        )
        ready = prepare(spec, at, options)
        if project is workspace.project:
            obtain_inputs(ready, workspace)
        link_inputs(ready.plan, ready.lock, workspace.store, store, workspace.reporter)
        obtain_inputs(ready, at)
        built, made = build_and_write(ready, at)
        parts = compare_parts(claim, ready, built, made, at)
        first = find_first(claim, parts, made.path, workspace, at, work)
    data = rebuild_document(claim, ready.lock, ready.plan, built, parts, first)
    return Result(data, rebuild_text(data))


def obtain_inputs(ready: ReadyImage, workspace: Workspace) -> None:
    """Fetch the inputs of an image into the store of `workspace`: those of the project remain, as after `make`. A lock
    of another user could name what only this one may read, so its inputs are in the temporary store alone. Raises
    InputError, EngineError."""
    request = ready.inputs.request
    fetch(
        ready.lock,
        workspace.store,
        workspace.site,
        workspace.reporter,
        where=request.source_places(),
        folder=Path(request.folder),
        own=own_images(workspace),
        contents=request.contents,
    )


def compare_parts(
    claim: Claim, ready: ReadyImage, built: BuildResult, made: SquashfsFile, workspace: Workspace
) -> list[Part]:
    """Return the layers, the configuration, the manifest of a published image, and the squashfs file."""
    layers = compare_layers(claim, built.layers)
    evidence = image_evidence(ready.plan, built.layers, ready.lock)["image"]
    config = Part("config", claim.config, str(evidence["config"]))
    squashfs = Part("squashfs", f"sha256:{claim.squashfs}", f"sha256:{made.sha256}")
    if not claim.digest:
        return [*layers, config, squashfs]
    image, manifest = rebuilt_image(ready, built, made), ""
    if claim.source:
        rebuilt = build_manifest(claim, image, workspace)
        layers = compare_blobs(claim, layers, [blob.digest for blob in rebuilt.layers()], workspace)
        manifest = rebuilt.digest
    if not all(part.equal for part in (*layers, config)):  # a manifest names them: they decide, and are named already
        manifest = ""
    elif not claim.source:
        manifest = lone_digest(image, workspace)
    return [*layers, config, Part("manifest", claim.digest, manifest), squashfs]


def build_manifest(claim: Claim, image: BuiltImage, workspace: Workspace) -> ImageParts:
    """Return the manifest that `publish` would write for the rebuild; its blobs are gone."""
    compression = published_compression(claim, workspace)
    encode = share_layers(image, compression, workspace).encode
    with open_built_layout(image, compression, workspace, encode=encode) as folder:
        annotations = make_annotations(image.record.sha256, list_texts(image, workspace))
        return ImageParts.read(folder).annotate(annotations)


def rebuilt_image(ready: ReadyImage, built: BuildResult, made: SquashfsFile) -> BuiltImage:
    """Return the rebuild as an image that is built."""
    record = ImageRecord(
        ready.plan.image,
        str(made.path),
        made.sha256,
        lock_digest(ready.lock),
        built.engine,
        made.messages,
        "",
        tuple(layer.diff_id for layer in built.layers),
        built.built,
        built.reused,
        0.0,
    )
    return BuiltImage(ready.resolution, ready.lock, ready.plan, record, built.layers, ready.key)


def published_compression(claim: Claim, workspace: Workspace) -> str:
    """Return the compression of the layers of a published image. Raises InputError, ConflictError."""
    image = open_remote(claim.source, workspace.site)
    assert image is not None, "a published image is in a registry or a layout"
    found = image.read(claim.digest)  # not its tag, which may have moved
    listed: Sequence[Document] = Document(found.value).part("layers").parts(needed=True)
    kinds = {compression_of(m.parse_descriptor(item).kind) for item in listed}
    return kinds.pop() if len(kinds) == 1 else "gzip"
