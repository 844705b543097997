"""The squashfs file of an image as an artifact: its packs, the tables that no pack has, and the document of both.

The file itself does not travel: who has the packs and the tables writes it again, byte for byte
(`envbuild.squashfs.write.assembly`). That is checked here, before anything is sent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild import __version__
from envbuild.build.cache.unit_document import PACK
from envbuild.core.byte_progress import count_bytes
from envbuild.core.console import Reporter
from envbuild.core.digest import reported_digest
from envbuild.core.errors import PublishError, VerifyError
from envbuild.core.json_text import canonical_json
from envbuild.core.regular_file import open_regular
from envbuild.export.options import ExportOptions
from envbuild.export.project_image import image_evidence
from envbuild.net.registry.media_types import OCI
from envbuild.oci.config import config_json
from envbuild.oci.document import MAX_DOCUMENT
from envbuild.publish import artifact_types as types
from envbuild.publish.finished_image import FinishedImage, changed_error, check_assembly, check_samples, open_pack
from envbuild.publish.pack_blobs import FileSlice
from envbuild.publish.published_pack import BlobPart
from envbuild.publish.published_texts import PublishedText, configuration_text, list_texts
from envbuild.publish.shared_layers import built_packs
from envbuild.publish.shared_pack_blobs import SharedLayer, make_shared_blobs
from envbuild.publish.squashfs_document import SquashfsDocument
from envbuild.squashfs.write.assembly import TruncatedSourceError, copy_tables, list_extents

if TYPE_CHECKING:
    from envbuild.export.built_image import BuiltImage
    from envbuild.spec.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact of an image (`subject`: its digest; empty: of none): the `manifest`, its digest (``sha256:…``), its
    blobs, each once, and the `annotations` of the manifest."""

    kind: str
    manifest: bytes
    digest: str
    subject: str
    blobs: tuple[FileSlice, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def descriptor(self) -> dict[str, Any]:
        """The entry of the artifact in a list of referrers."""
        entry = types.describe(OCI.manifest, self.digest.removeprefix("sha256:"), len(self.manifest))
        more = {"annotations": dict(self.annotations)} if self.annotations else {}
        return {**entry, "artifactType": self.kind, **more}


def lone_artifacts(image: BuiltImage, workspace: Workspace, work: Path, *, whole: bool) -> list[Artifact]:
    """Return the artifacts of an image of the project that is published without its layers: `project_artifacts`, with
    the configuration of the image as a document."""
    plan = image.plan
    config = configuration_text(plan.image, config_json(image.layers, plan.config, plan.epoch))
    return project_artifacts(image, None, [*list_texts(image, workspace), config], workspace, work, whole=whole)


def lone_digest(image: BuiltImage, workspace: Workspace, release: str = __version__) -> str:
    """Return the digest (``sha256:…``) of the artifact that `publish --squashfs-only` of a `release` of envbuild writes
    for an image, if the releases differ in nothing but their names."""
    with workspace.store.workdir() as work:
        made = lone_artifacts(image, workspace, work, whole=False)[0]
        manifest = json.loads(made.manifest)
        entry = next(layer for layer in manifest["layers"] if layer["mediaType"] == types.DOCUMENT)
        document = next(blob for blob in made.blobs if f"sha256:{blob.digest}" == entry["digest"])
        content = canonical_json({**json.loads(document.path.read_bytes()), "envbuild": release})
    entry |= {"digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}
    return f"sha256:{hashlib.sha256(canonical_json(manifest)).hexdigest()}"


def project_artifacts(
    image: BuiltImage,
    subject: dict[str, Any] | None,
    texts: Sequence[PublishedText],
    workspace: Workspace,
    work: Path,
    *,
    whole: bool,
    shared: Mapping[str, SharedLayer] = {},
) -> list[Artifact]:
    """Return the artifacts of an image of the project, whose OCI image is `subject` (None: it is not published): its
    squashfs file as packs with `texts`, and with `whole` also as one blob. Files that are made for them are in `work`.
    `shared`: packs by name, and the blobs of the image that have bytes of them.

    Raises VerifyError for a file that its packs do not result in: the next run writes it again.
    """
    from envbuild.core.store.records import forget_damaged
    from envbuild.export.squashfs_image import plan_squashfs

    plan, options, path = image.plan, ExportOptions(sha256=True), Path(image.record.artifact)
    packs = built_packs(image, workspace)
    evidence = image_evidence(plan, image.layers, image.lock)
    ranges = plan_squashfs(packs, plan.config, path, options, epoch=plan.epoch, evidence=evidence)
    form = options.pack_format
    merge = {"codec": form.codec, "level": form.level, "block": form.block, "epoch": plan.epoch}
    finished = FinishedImage(plan.image, plan.config.architecture, path, image.record.sha256, packs, ranges, merge)
    try:
        return finished_artifacts(finished, subject, workspace.reporter, work, texts, whole=whole, shared=shared)
    except VerifyError:
        forget_damaged(image.key.path)
        raise


def finished_artifacts(
    image: FinishedImage,
    subject: dict[str, Any] | None,
    reporter: Reporter,
    work: Path,
    texts: Sequence[PublishedText] = (),
    *,
    whole: bool,
    shared: Mapping[str, SharedLayer] = {},
) -> list[Artifact]:
    """Return the artifacts of a squashfs file. Raises VerifyError for one that its packs do not result in, or (`whole`)
    whose own bytes are not those of its sha256."""
    total = sum(pack.stat().st_size for pack in image.packs) + image.path.stat().st_size
    add = count_bytes(reporter, "packs", total)
    reporter.start("packs", f"{image.name}: comparing its packs with its squashfs file")
    try:
        found = squashfs_artifact(image, subject, work, texts, add, shared)
    finally:
        reporter.finish("packs")
    if not whole:
        return [found]
    # Bytes that are not in a pack are those of the file; of the others only the packs were read.
    if (got := reported_digest(image.path, reporter, follow=False)) != image.sha256:
        raise VerifyError(
            f"the squashfs file of {image.name} has changed: expected sha256 {image.sha256}, got {got}",
            hint="run the command again: the file is then written again",
            where=str(image.path),
        )
    return [found, whole_artifact(image, subject or found.descriptor, work)]


def squashfs_artifact(
    image: FinishedImage,
    subject: dict[str, Any] | None,
    work: Path,
    texts: Sequence[PublishedText] = (),
    progress: Callable[[int], object] = lambda size: None,
    shared: Mapping[str, SharedLayer] = {},
) -> Artifact:
    """Return the artifact with the packs of an image, and `texts`. `progress` is called with bytes that were read: in
    total those of the packs and of the file. `shared`: as of `project_artifacts`."""
    with open_regular(image.path, follow=False) as file:
        size = file.seek(0, 2)
        tables = work / "tables"
        try:
            extents = list_extents(file.fileno(), size, image.ranges, len(image.packs))
            with tables.open("xb") as out:
                copy_tables(file.fileno(), extents, out.fileno())
        except TruncatedSourceError as error:
            raise changed_error(image, str(error)) from None
    packs, blobs, used = make_shared_blobs(image.packs, shared, work, progress)
    layers = {layer.blob.digest: layer.blob for layer in used.values()}
    made = read_slice(tables, f"{image.name}.tables")
    sources = {layer.blob.digest: layer.blob for layer in used.values() if layer.is_here}
    sources |= {blob.digest: blob for blob in [*blobs, made]}
    pieces = [open_pack(pack, path, sources) for pack, path in zip(packs, image.packs, strict=True)]
    if image.is_new:
        check_samples(image, extents, pieces)
    else:
        check_assembly(image, extents, pieces, made, progress)
    document = SquashfsDocument(
        image.name,
        image.architecture,
        digest_of(subject),
        image.sha256,
        size,
        BlobPart(made.digest, 0, made.size),
        tuple(packs),
        extents,
        image.merge,
    ).encode()
    if len(document) > MAX_DOCUMENT:
        raise PublishError(
            f"the squashfs file of {image.name} has {len(extents)} extents, too many for one document",
            hint=f"publish it as one blob: envbuild publish {image.name} --whole",
        )
    (work / "document").write_bytes(document)
    parts = [(types.DOCUMENT, read_slice(work / "document", f"{image.name}.squashfs.json")), (types.TABLES, made)]
    for number, text in enumerate(texts):
        copy = work / f"text-{number}"
        copy.write_bytes(text.content)
        parts.append((text.kind, read_slice(copy, text.title)))
    parts += [(OCI.layers["zstd"], blob) for blob in layers.values()]
    return make_artifact(types.SQUASHFS, [*parts, *((PACK, blob) for blob in blobs)], subject, work, own=layers)


def whole_artifact(image: FinishedImage, subject: dict[str, Any], work: Path) -> Artifact:
    """Return the artifact with the file as one blob, for clients without envbuild."""
    blob = FileSlice(image.sha256, image.path.stat().st_size, image.path, 0, f"{image.name}.sqsh")
    return make_artifact(types.WHOLE, [(types.WHOLE, blob)], subject, work)


def make_artifact(
    kind: str,
    parts: Sequence[tuple[str, FileSlice]],
    subject: dict[str, Any] | None,
    work: Path,
    annotations: Mapping[str, str] | None = None,
    own: Container[str] = (),
) -> Artifact:
    """Return an artifact of `kind` with blobs of some media types. `own`: blobs (hex) of the image that it belongs to,
    which are published with that."""
    layers = [types.describe(media, part.digest, part.size, part.title) for media, part in parts]
    manifest = canonical_json(types.artifact_manifest(kind, layers, subject, annotations))
    empty = work / "empty"
    empty.write_bytes(types.EMPTY)
    sent = [part for _, part in parts if part.digest not in own]
    blobs = {part.digest: part for part in [read_slice(empty, ""), *sent]}
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    return Artifact(kind, manifest, digest, digest_of(subject), tuple(blobs.values()), annotations or {})


def digest_of(subject: dict[str, Any] | None) -> str:
    """Return the digest (``sha256:…``) of the image that an artifact belongs to; empty if there is none."""
    return str(subject["digest"]) if subject else ""


def read_slice(path: Path, title: str) -> FileSlice:
    """Return all of a file that envbuild made as a slice."""
    with path.open("rb") as file:
        return FileSlice(hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size, path, 0, title)
