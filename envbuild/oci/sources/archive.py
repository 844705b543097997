"""Archives of images: what ``docker save`` and ``podman save`` write, or the tar of an OCI layout.

Docker's form (Docker image specification 1.2, "Combined Image JSON + Filesystem Changeset Format"): manifest.json lists
the images with the names of their configurations and layers; the layers are ``ID/layer.tar``, later ``blobs/sha256/…``.
The files are read in place. A compressed archive has no random access: it is read once for the names and once for the
layers (`archive_stream.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from envbuild.core.bounded_tar import ImageTarFile
from envbuild.core.errors import InputError
from envbuild.core.text import printable_list
from envbuild.oci import manifest as m
from envbuild.oci.document import InvalidDocumentError, Part, check_names, parse_json
from envbuild.oci.sources import image_documents
from envbuild.oci.sources.archive_index import HINT, ArchiveIndex, convert_archive_errors
from envbuild.oci.sources.archive_stream import index_compressed_archive, is_compressed, with_layer_stream
from envbuild.oci.sources.base import SourceImage, SourceLayer
from envbuild.oci.sources.both_forms import check_both_forms, docker_name
from envbuild.oci.sources.oci_layout import INDEX, has_file, read_layout_image, several_images_error
from envbuild.oci.sources.platform import Platform

MANIFEST, OLDER = "manifest.json", "repositories"
KEYS = ("Config", "RepoTags", "Layers", "Parent", "LayerSources")  # of its entries


@contextlib.contextmanager
def open_archive(path: Path, tag: str, platform: Platform) -> Iterator[SourceImage]:
    """Return the image ``docker-archive:PATH:TAG``. Raises InputError, ConflictError."""
    if not path.is_file():  # a FIFO would wait for ever, and an archive is read more than once
        raise InputError(f"{path} is not a regular file", hint=HINT)
    packed = is_compressed(path)
    archive = index_compressed_archive(path) if packed else index_archive(path)
    image = read_image(archive, tag, platform)
    yield with_layer_stream(image, archive) if packed else image


def index_archive(path: Path) -> ArchiveIndex:
    """Return the index of the files of an archive: its headers are read, the content is skipped. Raises InputError."""
    archive = ArchiveIndex(path)
    with convert_archive_errors(path), ImageTarFile.open(path, "r:") as tar:
        for entry in tar:
            archive.add(entry)
    archive.check_folders()
    end = path.stat().st_size
    if any(start + size > end for start, size in archive.places.values()):
        raise InputError(f"{path} is truncated", hint=HINT)
    return archive


def read_image(archive: ArchiveIndex, tag: str, platform: Platform) -> SourceImage:
    """Return the image that an archive calls `tag` (empty: its only one)."""
    reference = f"docker-archive:{archive.path}:{tag}" if tag else f"docker-archive:{archive.path}"
    stem = archive.path.name.partition(".tar")[0].removesuffix(".tgz")
    if MANIFEST not in archive.places and MANIFEST not in archive.links:  # Docker and skopeo follow a link, too
        if INDEX not in archive.places:
            raise InputError(f"{archive.path} holds neither Docker's manifest.json nor an OCI layout", hint=HINT)
        if OLDER in archive.places or OLDER in archive.links:  # which Docker reads without manifest.json
            raise InputError(f"{reference} may be two images: it has {OLDER!r} of Docker 1.9, and {INDEX}", hint=HINT)
        return read_layout_image(archive, tag, reference, stem, platform)
    item = find_entry(archive.read(MANIFEST), tag, reference)
    try:
        names = [name.expect(str) for name in item.part("Layers").parts()]
        configuration = item.part("Config").expect(str)
        called = [name.expect(str) for name in item.part("RepoTags").parts()]
    except InvalidDocumentError as error:
        raise m.corrupt_document_error(reference, error, MANIFEST) from None
    content = archive.read(configuration)
    found = image_documents.read_configuration(content, reference, platform)
    image_documents.check_layer_count(found, names, reference)
    check_both_forms(
        archive, called, found, variant_of(content, reference), reference, configuration_files(archive, reference)
    )
    layers = [
        SourceLayer(
            diff_id,
            "",
            archive.size(name),
            image_documents.layer_name(number, len(names)),
            partial(archive.open, name),
            image=reference,
        )
        for number, (name, diff_id) in enumerate(zip(names, found.diff_ids, strict=True), 1)
    ]
    return SourceImage(
        reference=reference,
        origin=f"docker-archive:{found.identity}",
        manifest="",
        config=found.config,
        created=found.created,
        layers=tuple(layers),
        identity=found.identity,
        name=image_documents.file_name([stem, tag.rpartition(":")[2]]),
        notes=found.notes,
        documents=(content,),
    )


def configuration_files(archive: ArchiveIndex, reference: str) -> list[str]:
    """Return the files of the configurations of all images in manifest.json that the archive has."""
    try:
        named = [item.part("Config").text() for item in parse_json(archive.read(MANIFEST)).parts(needed=True)]
    except InvalidDocumentError as error:
        raise m.corrupt_document_error(reference, error, MANIFEST) from None
    return [name for name in dict.fromkeys(named) if has_file(archive, name)]


def variant_of(configuration: bytes, reference: str) -> str:
    """Return the variant of the architecture that a configuration states; empty for none. Raises InputError."""
    found = m.parse_document(configuration, reference, image_documents.CONFIGURATION).get("variant")
    return found if isinstance(found, str) else ""


def find_entry(content: bytes, tag: str, reference: str) -> Part:
    """Return the entry of Docker's manifest.json that `tag` names: the whole name, or its end (``app:1``, ``1``)."""
    try:
        listed = parse_json(content).parts(needed=True)
        for item in listed:
            check_names(item.value, KEYS)
        names = [[name.expect(str) for name in item.part("RepoTags").parts()] for item in listed]
    except InvalidDocumentError as error:
        raise m.corrupt_document_error(reference, error, MANIFEST) from None
    there = sorted(name for tags in names for name in tags)
    if not listed:
        raise InputError(f"{reference} holds no image", hint=HINT)
    if not tag:
        if len(listed) > 1:
            raise several_images_error(reference, there)
        return listed[0]
    wanted = tag if ":" in tag else f"{tag}:latest"
    for fitting in (
        {name for name in there if docker_name(name) == docker_name(tag)},
        {f"localhost/{wanted}"},
        {name for name in there if name.endswith(f"/{wanted}") or name.rpartition(":")[2] == tag},
    ):
        found = [item for item, tags in zip(listed, names, strict=True) if fitting.intersection(tags)]
        if len(found) == 1:
            return found[0]
        if found:
            break
    raise InputError(
        f"{reference} has no unique image with that name; it has {printable_list(there) or 'one without a name'}",
        hint="name one of these" if there else "leave out the tag",
    )
