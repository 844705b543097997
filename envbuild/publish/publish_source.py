"""``envbuild publish SOURCE``: a third-party image to a registry or a folder, with the file that `export` writes.

Blobs of the source are streamed to the target, or copied by a registry that has both; none is stored here.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.core.errors import InputError, SpecError, VerifyError
from envbuild.core.result import Result
from envbuild.core.shell import shell_word
from envbuild.core.store.records import forget_damaged
from envbuild.export.foreign_image import ConvertedImage, conversion_record, convert_open_image
from envbuild.export.options import ExportOptions
from envbuild.export.pack_layers import LayerPacker, foreign_evidence
from envbuild.export.progress import PACKING, Progress, track_export
from envbuild.export.squashfs_image import plan_squashfs
from envbuild.net.registry.client import RegistryAddress, Repository
from envbuild.net.transport import Transport
from envbuild.oci.sources.base import SourceImage
from envbuild.oci.sources.open import SourceReference, open_source, parse_source, split_path
from envbuild.oci.sources.registry import parse_source_reference
from envbuild.publish.binding import make_annotations
from envbuild.publish.destination import TAG, Destination, parse_destination
from envbuild.publish.finished_image import FinishedImage
from envbuild.publish.image_parts import ImageParts
from envbuild.publish.proved_layers import prove_layers, record_proved
from envbuild.publish.published_texts import configuration_text
from envbuild.publish.source_parts import platform_of, source_parts
from envbuild.publish.squashfs_artifact import finished_artifacts
from envbuild.publish.squashfs_document import PLAIN
from envbuild.publish.target import Target
from envbuild.spec.workspace import Workspace
from envbuild.squashfs.pack.store_packs import pack_path

if TYPE_CHECKING:
    from envbuild.core.signing.key_file import Signer


def publish_source(
    source: str,
    to: str,
    workspace: Workspace,
    *,
    compression: str = "",
    platform: str = "",
    move: bool = False,
    whole: bool = False,
    index: str = "",
    layers: bool = True,
    signer: Signer | None = None,
) -> Result:
    """Publish the image that `source` names (`envbuild.oci.sources.open`).

    `compression`: of the layers (empty: as the source has them); `platform`: of an index; `move`, `whole`, `layers`,
    `signer`: as of `envbuild.publish.publish.publish_image`.

    Raises SpecError, InputError, ConflictError, PublishError, VerifyError.
    """
    began, options = time.monotonic(), ExportOptions(sha256=True, platform=platform)
    target = Target.open(find_destination(source, to).with_index(index), workspace)
    with (
        track_export(source, None, workspace, PACKING) as progress,
        open_source(source, workspace.site, workspace.store, platform, alone=True) as image,
        workspace.store.workdir() as work,
    ):
        check_plain(image)
        form, store, reporter = options.pack_format, workspace.store, workspace.reporter
        provider = provider_of(source)
        read = prove_layers(image, provider, form, store, reporter)
        done = convert_open_image(image, progress, options, began)
        packed = () if done.up_to_date else zip(image.layers, done.layers, strict=True)
        read += [layer for layer, made in packed if not made.cached]
        # another command may have written packs meanwhile, for as long as a slow source decides
        record_proved(store, provider, [*read, *prove_layers(image, provider, form, store, reporter, read)])
        if target.push:
            target.push.known = {**target.push.known, **same_registry(source, image, target)}
        finished = finish_image(image, done, progress, options)
        annotations, texts, parts = make_annotations(finished.sha256, ()), [], None
        if layers:
            parts = source_parts(image, annotations, compression, workspace, work, target.has_blob)
        else:
            texts.append(configuration_text(image.name, image.documents[-1]))
        try:
            subject = parts.subject if parts else None
            artifacts = finished_artifacts(finished, subject, workspace.reporter, work, texts, whole=whole)
        except VerifyError:
            forget_damaged(conversion_record(image, options, workspace))
            raise
        parts = parts or ImageParts.of_artifact(artifacts[0], platform_of(image.documents[-1]))
        if signer:
            from envbuild.publish.signature_artifacts import signature_artifacts

            signed = target.destination.name(image.name)
            artifacts += signature_artifacts(signer, signed, subject or artifacts[0].descriptor, work)
        return target.send(image.reference, parts, artifacts, finished.sha256, move=move)


def parse_publishable(source: str) -> SourceReference | None:
    """Return the source that a user named; None for an image of the project. Raises SpecError for an image of a Docker
    Engine, which does not state the blobs of its layers, InputError."""
    place = parse_source(source)
    if place and place.kind == "daemon":
        raise SpecError(
            f"{source[:200]!r} cannot be published from the Docker Engine",
            hint=f"docker save -o image.tar {shell_word(place.rest[:200])}; "
            "then: envbuild publish docker-archive:image.tar --to …",
        )
    return place


def provider_of(source: str) -> str:
    """Return the repository of a source, as messages name it; empty for one on this machine."""
    place = parse_source(source)
    return parse_source_reference(place.rest).name if place and place.kind == "registry" else ""


def find_destination(source: str, to: str) -> Destination:
    """Return where a third-party image is published; without a tag in `to` it has the tag of the source.

    Raises SpecError."""
    if not to:
        raise SpecError(
            "publish of a third-party image needs a destination",
            hint=f"envbuild publish {shell_word(source[:200])} --to REGISTRY/REPOSITORY[:TAG]",
        )
    return parse_destination(to, source_tag(parse_publishable(source)))


def source_tag(place: SourceReference | None) -> str:
    """Return the tag of a source; ``latest`` for one without."""
    if place is None:
        return "latest"
    if place.kind == "registry":
        reference = parse_source_reference(place.rest)
        return "latest" if reference.digest else reference.tag
    tag = split_path(place.rest)[1].rpartition(":")[2]
    return tag if TAG.fullmatch(tag) else "latest"


def check_plain(image: SourceImage) -> None:
    """Raise InputError for an image whose architecture no reader of a published squashfs file accepts."""
    if not PLAIN.fullmatch(image.config.architecture):
        raise InputError(
            f"{image.reference} states the architecture {image.config.architecture[:60]!a}, which is not a plain name",
            hint="choose another image",
        )


def finish_image(image: SourceImage, done: ConvertedImage, progress: Progress, options: ExportOptions) -> FinishedImage:
    """Return the squashfs file of an image with its packs; those that are missing are written."""
    workspace, form = progress.workspace, options.pack_format
    if done.up_to_date:
        LayerPacker(image, workspace, options).pack_missing()
    packs: list[Path] = [pack_path(workspace.store, layer.diff_id, form) for layer in image.layers]
    path, epoch = done.artifact.path, image.created
    ranges = plan_squashfs(
        packs, image.config, path, options, epoch=epoch, evidence=foreign_evidence(image), foreign=True
    )
    # Another member of a group could have changed a pack since.
    is_new = not done.up_to_date and not workspace.store.is_shared
    merge = {"codec": form.codec, "level": form.level, "block": form.block, "epoch": epoch}
    return FinishedImage(
        image.name, image.config.architecture, path, done.artifact.sha256, packs, ranges, merge, is_new
    )


def same_registry(source: str, image: SourceImage, target: Target) -> dict[str, str]:
    """Return digest (hex) → repository, of the blobs of an image that the registry of the target has."""
    place = parse_source(source)
    if place is None or place.kind != "registry" or target.push is None:
        return {}
    site = target.workspace.site
    repository = Repository(parse_source_reference(place.rest), site, Transport(site.network()))
    names = [
        item.repository
        for item in repository.places
        if isinstance(item, RegistryAddress) and item.url == target.push.at.url
    ]
    digests = [image.identity, *(layer.digest for layer in image.layers)]
    return {digest.removeprefix("sha256:"): names[0] for digest in digests} if names else {}
