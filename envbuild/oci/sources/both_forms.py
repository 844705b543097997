"""Archives with Docker's manifest.json and an OCI layout, as `docker save` writes them since release 25: programs read
the one or the other (containerd the layout), so both must name the same image."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from envbuild.core.errors import ConflictError, InputError
from envbuild.net.registry.media_types import REF_NAME, is_referrer
from envbuild.oci import manifest as m
from envbuild.oci.document import InvalidDocumentError, Part
from envbuild.oci.sources.archive_index import ArchiveIndex
from envbuild.oci.sources.image_documents import SourceConfig
from envbuild.oci.sources.oci_layout import INDEX, blob_path, follow_entries, has_file, read_document
from envbuild.oci.sources.platform import PLAIN, Platform

MAX_MANIFESTS = 1000  # of a layout that are read
IMAGE_NAME = "io.containerd.image.name"  # of an entry: the whole name (containerd, images/annotations.go)


def check_both_forms(
    archive: ArchiveIndex,
    names: Collection[str],
    config: SourceConfig,
    variant: str,
    reference: str,
    others: Collection[str] = (),
) -> None:
    """Check that the layout of an archive, if it has one, has no other image than the chosen one of manifest.json.

    names: those that manifest.json has for the image (none: it is the only one). config: its configuration; variant: of
    the architecture there; others: files of the configurations of all images there. An archive may have an image for
    several platforms in the layout, and for one in manifest.json. Raises InputError."""
    if INDEX not in archive.places and INDEX not in archive.links:
        return
    own = config.config.architecture
    platforms = [Platform(own, one, asked=True) for one in dict.fromkeys((variant, ""))]
    # containerd takes the one for the machine, if the archive has it
    machine = [] if Platform.of("").arch == own else [Platform(Platform.of("").arch, asked=True)]
    wanted = {plain_name(name) for name in names}
    value = m.parse_document(archive.read(INDEX), reference, INDEX)
    try:
        called = [item for item in m.list_index(value, reference, INDEX) if is_called(item, wanted)]
    except InvalidDocumentError as error:
        raise m.corrupt_document_error(reference, error, INDEX) from None
    for item in called:
        for digest in chosen_manifests(archive, item, reference, platforms, machine):
            found = m.read_manifest(
                m.parse_document(read_document(archive, digest, reference), reference),
                reference,
                lambda part: has_file(archive, blob_path(part.digest)),
            )
            if f"sha256:{found.config.digest}" != config.identity:
                raise two_images_error(reference, config.identity, f"sha256:{found.config.digest}")
    listed = {config.identity, *(f"sha256:{hashlib.sha256(archive.read(name)).hexdigest()}" for name in others)}
    for identity, arch, kind in configurations(archive, value, reference):
        here = (arch == own and kind == variant) or (arch == Platform.of("").arch and kind in PLAIN.get(arch, ("",)))
        if here and identity not in listed:  # skopeo and containerd take it by another name, or by its place
            raise two_images_error(reference, config.identity, identity)


def two_images_error(reference: str, one: str, other: str) -> InputError:
    return InputError(
        f"{reference} is two images: manifest.json has the configuration {one}, and index.json {other}",
        hint="programs differ in which of both they read: save the image again, e.g. docker save -o FILE NAME",
    )


def configurations(archive: ArchiveIndex, index: Mapping[str, Any], reference: str) -> Iterator[tuple[str, str, str]]:
    """Yield identity, architecture and variant of the configurations to which an index leads, as far as the archive has
    them. Raises InputError."""
    pending, left = [(item, 0) for item in m.list_index(index, reference, INDEX)], MAX_MANIFESTS
    while pending and left:
        (item, depth), left = pending.pop(), left - 1
        try:
            digest = f"sha256:{m.parse_descriptor(item).digest}"
            if is_referrer(item.expect(dict)) or not has_file(archive, blob_path(digest)):
                continue
            value = m.parse_document(read_document(archive, digest, reference), reference)
            if m.is_index(value):
                pending += [(part, depth + 1) for part in m.list_index(value, reference)] if depth < m.INDEXES else []
                continue
            config = f"sha256:{m.parse_descriptor(Part(value).part('config')).digest}"
        except InvalidDocumentError as error:
            raise m.corrupt_document_error(reference, error, INDEX) from None
        if has_file(archive, blob_path(config)):
            found = m.parse_document(read_document(archive, config, reference), reference)
            yield config, str(found.get("architecture") or ""), str(found.get("variant") or "")
    if pending:
        raise InputError(
            f"{reference} leads to more than {MAX_MANIFESTS} manifests", hint="it is not what docker save wrote"
        )


def chosen_manifests(
    archive: ArchiveIndex, item: Part, reference: str, own: Sequence[Platform], machine: Sequence[Platform]
) -> Iterator[str]:
    """Yield the manifests (``sha256:…``) of an entry that programs choose: for the first of the platforms `own` that it
    has, and for that of the `machine`, of which the archive may lack the manifest."""
    for platform in own:
        with contextlib.suppress(ConflictError):  # of other platforms
            yield follow_entries(archive, [item], reference, platform)
            break
    for platform in machine:
        with contextlib.suppress(ConflictError, InputError):
            yield follow_entries(archive, [item], reference, platform)


def is_called(item: Part, wanted: Collection[str]) -> bool:
    """Return whether an entry of index.json has one of the names, or none: containerd names it
    after the archive, also if it calls itself an artifact. Raises InvalidDocumentError."""
    annotations = item.part("annotations")
    name, tag = annotations.optional(IMAGE_NAME).text(), annotations.optional(REF_NAME).text()
    if not wanted or not (name or tag):
        return bool(name) or not is_referrer(item.expect(dict))
    if name and plain_name(name) in wanted:
        return True
    if name and ":" not in tag:  # containerd writes the tag alone beside the whole name
        return False
    return plain_name(tag) in wanted or any(other.rpartition(":")[2] == tag for other in wanted)


def plain_name(name: str) -> str:
    """Return a name as `docker_name` does, without the place that podman writes in front of it."""
    return docker_name(name).removeprefix("localhost/")


def docker_name(name: str) -> str:
    """Return the one name that Docker and skopeo have for several (distribution/reference, "familiar name")."""
    short = re.sub(r"^(index\.)?docker\.io/", "", name).removeprefix("library/")
    return short if ":" in short.rpartition("/")[2] else f"{short}:latest"
