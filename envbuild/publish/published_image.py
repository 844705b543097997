"""A published image as its small documents describe it: configuration, layers, squashfs file, spec, lock, resolution.

Nothing else is fetched. All of it comes from a registry or a folder that strangers may write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envbuild.core.errors import InputError, LockError
from envbuild.core.plain_yaml import MAX_BYTES
from envbuild.export.enroot import start_script
from envbuild.lock.lockfile import parse_lock
from envbuild.oci import manifest as m
from envbuild.oci.document import MAX_DOCUMENT, InvalidDocumentError, Part
from envbuild.oci.sources.image_documents import SourceConfig, check_layer_count, parse_configuration
from envbuild.oci.sources.platform import Platform
from envbuild.publish.artifact_types import CONFIG, LOCK, RESOLUTION, SPEC
from envbuild.publish.find_squashfs import PublishedSquashfs, check_listed, find_squashfs
from envbuild.publish.remote_blob import read_blob
from envbuild.publish.remote_image import ImageDocument, RemoteImage, report_reading, require_remote
from envbuild.publish.signature_check import SignatureReport, check_policy
from envbuild.spec.workspace import Workspace
from envbuild.verify.contents.metadata import ImageMetadata, parse_object, parse_start_script

UNIT = "envbuild unit "  # begin of the history of a layer that envbuild built (`envbuild.oci.config`)


@dataclass(frozen=True, slots=True)
class PublishedLayer:
    """A layer: digest (``sha256:…``) and size of its blob (empty, 0: it was not published), digest of its content, and
    the unit that it is of."""

    digest: str
    size: int
    diff_id: str
    unit: str


@dataclass(frozen=True, slots=True)
class PublishedImage:
    """A published image: `reference` as the user named it, `digest` (``sha256:…``) of its manifest. `spec`, `lock` and
    `resolution` are empty if it was published without them."""

    reference: str
    digest: str
    config: SourceConfig
    layers: tuple[PublishedLayer, ...]
    squashfs: PublishedSquashfs | None
    spec: str
    lock: str
    resolution: Mapping[str, Any]

    def metadata(self) -> ImageMetadata:
        """Return what the image would state about itself as a squashfs file."""
        config, lock, error = self.config.config, None, ""
        try:
            lock = parse_lock(self.lock, Path(self.reference)) if self.lock else None
        except LockError as found:  # perhaps of a later envbuild
            error = found.message
        script = start_script(replace(config, labels={}))  # a label may have a line break
        return ImageMetadata(
            origin=dict(self.resolution),
            lock=lock,
            lock_error=error,
            env=dict(config.env),
            **{**parse_start_script(script), "labels": dict(config.labels)},
            has_start_script=True,
        )


def read_published(text: str, workspace: Workspace, platform: str = "", *, to_use: bool = False) -> PublishedImage:
    """Return the documents of an image of a registry or a layout; `platform`: of an index (empty: this machine's);
    `to_use`: something of it will be started, so that the policy of signatures holds.

    Raises SpecError, InputError, VerifyError, ConflictError, SignatureError.
    """
    image, wanted = require_remote(text, workspace.site), Platform.of(platform)
    with report_reading(image, workspace.reporter):
        found = image.find(wanted)
        signed = check_policy(image, found, workspace) if to_use else SignatureReport()
        documents = read_documents_of(image, found, wanted, bound=bool(signed.keys))
        if signed.keys:
            check_listed(documents.squashfs, found, image.name)
        return documents


def read_documents_of(
    image: RemoteImage, found: ImageDocument, wanted: Platform, *, bound: bool = False
) -> PublishedImage:
    """Return the documents of the manifest `found`, as `image.find` returned it; a tag may name another one meanwhile.

    bound: a key of the site signed it, so that only what it names itself is taken. Raises InputError, VerifyError,
    ConflictError.
    """
    squashfs = find_squashfs(image, found, bound=bound)
    found, config, layers = read_configuration(image, found, squashfs, wanted)
    return PublishedImage(
        image.name,
        found.digest,
        config,
        layers,
        squashfs,
        read_text(image, squashfs, SPEC),
        read_text(image, squashfs, LOCK),
        parse_object(read_text(image, squashfs, RESOLUTION)),
    )


def read_configuration(
    image: RemoteImage, found: ImageDocument, squashfs: PublishedSquashfs | None, platform: Platform
) -> tuple[ImageDocument, SourceConfig, tuple[PublishedLayer, ...]]:
    """Return the manifest of an image, its configuration and layers. Raises InputError, VerifyError, ConflictError for
    one of another `platform`, if the user named that."""
    if squashfs and squashfs.artifact == found.digest and squashfs.image:
        found = image.read(squashfs.image)
    if squashfs and not squashfs.image:
        return (found, *read_own_configuration(image, squashfs, platform))
    return (found, *read_layers(image, found, platform))


def read_layers(
    image: RemoteImage, found: ImageDocument, platform: Platform
) -> tuple[SourceConfig, tuple[PublishedLayer, ...]]:
    """Return the configuration and the layers of an image. Raises InputError, VerifyError, ConflictError."""
    try:
        whole = Part(found.value)
        described = m.parse_descriptor(whole.part("config"))
        listed = [m.parse_descriptor(item) for item in whole.part("layers").parts(needed=True)]
        if described.size > MAX_DOCUMENT:
            raise InvalidDocumentError(f"its configuration has more than {MAX_DOCUMENT >> 20} MiB")
    except InvalidDocumentError as error:
        raise m.corrupt_document_error(image.name, error) from None
    content = read_blob(image, described.digest, described.size)
    value = m.parse_document(content, image.name, "configuration")
    config = parse_configuration(value, f"sha256:{described.digest}", image.name, platform)
    check_layer_count(config, listed, image.name)
    layers = [
        PublishedLayer(f"sha256:{layer.digest}", layer.size, diff_id, unit)
        for layer, diff_id, unit in zip(listed, config.diff_ids, unit_names(value, len(listed)), strict=True)
    ]
    return config, tuple(layers)


def read_own_configuration(
    image: RemoteImage, squashfs: PublishedSquashfs, platform: Platform
) -> tuple[SourceConfig, tuple[PublishedLayer, ...]]:
    """Return the configuration that a squashfs file was published with, and its layers, which were not published.

    Raises InputError, VerifyError, ConflictError."""
    listed = [layer for layer in squashfs.layers if layer.kind == CONFIG and layer.size <= MAX_DOCUMENT]
    if not listed:
        raise InputError(f"{image.name} was published without the configuration of its image", hint="publish it again")
    content = read_blob(image, listed[0].digest, listed[0].size)
    value = m.parse_document(content, image.name, "configuration")
    config = parse_configuration(value, f"sha256:{listed[0].digest}", image.name, platform)
    names = unit_names(value, len(config.diff_ids))
    return config, tuple(
        PublishedLayer("", 0, diff_id, unit) for diff_id, unit in zip(config.diff_ids, names, strict=True)
    )


def unit_names(config: Mapping[str, Any], count: int) -> Sequence[str]:
    """Return the units of the layers, as the history of the image names them; empty for other layers."""
    history = config.get("history")
    entries = [item for item in history if isinstance(item, dict)] if isinstance(history, list) else []
    texts = [str(item.get("created_by") or "") for item in entries if not item.get("empty_layer")]
    names = [text.removeprefix(UNIT) if text.startswith(UNIT) else "" for text in texts]
    return names if len(names) == count else [""] * count


def read_text(image: RemoteImage, squashfs: PublishedSquashfs | None, kind: str) -> str:
    """Return a text that was published with an image; empty if there is none."""
    for layer in squashfs.layers if squashfs else ():
        if layer.kind == kind and layer.size <= MAX_BYTES:
            return read_blob(image, layer.digest, layer.size).decode(errors="replace")
    return ""
