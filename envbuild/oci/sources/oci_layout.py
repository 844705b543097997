"""OCI layouts (OCI image spec 1.1, image-layout.md): a folder, or the archive of one."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from envbuild.core.errors import InputError
from envbuild.core.regular_file import NotRegularError, open_regular
from envbuild.core.shell import shell_word
from envbuild.core.text import printable, printable_list
from envbuild.net.registry.media_types import NO_IMAGE, REF_NAME, is_referrer, names_two_images
from envbuild.oci import manifest as m
from envbuild.oci.document import MAX_DOCUMENT, InvalidDocumentError, Part
from envbuild.oci.sources import image_documents
from envbuild.oci.sources.base import SourceImage
from envbuild.oci.sources.platform import Platform, pick_manifest

REWRITE = "write the layout again, e.g. skopeo copy docker://NAME oci:DIR"
INDEX = "index.json"
MOST_ENTRIES = 100  # of one name: an image for each platform


class LayoutFiles(Protocol):
    """Files of a layout, in a folder or an archive."""

    def read(self, name: str) -> bytes:
        """Return all of a small file. Raises InputError."""
        ...

    def open(self, name: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        """Return a file from its first byte. Raises InputError."""
        ...


@dataclass(frozen=True, slots=True)
class LayoutFolder:
    """Files of a layout in a folder. Only regular files below that folder are read; links within it are followed."""

    path: Path

    def read(self, name: str) -> bytes:
        with self.open(name) as file:
            return file.read(MAX_DOCUMENT + 1)

    def open(self, name: str) -> IO[bytes]:
        with self.readable(name) as real:
            return open_regular(real, buffering=0, follow=False)

    def find(self, name: str) -> Path:
        """Return the path of a regular file, through no link that leads out of the layout. Raises InputError."""
        with self.readable(name) as real:
            if not stat.S_ISREG(real.lstat().st_mode):
                raise NotRegularError
            return real

    @contextlib.contextmanager
    def readable(self, name: str) -> Iterator[Path]:
        """Yield the path to which a file leads. Raises InputError for one outside of the layout, and for errors of the
        context."""
        path = self.path / name
        try:
            real = path.resolve(strict=True)
            if not real.is_relative_to(self.path.resolve()):
                raise InputError(
                    f"{path} cannot be read: it is a link to {real}, which is outside of the layout",
                    hint="if that file is wanted, copy it:  "
                    f"cp --remove-destination {shell_word(real)} {shell_word(path)}",
                )
            yield real
            return
        except NotRegularError:
            why = "it is not a regular file"
        except RuntimeError:  # Python up to 3.12: a circle of links
            why = "too many levels of symbolic links"
        except OSError as error:
            why = error.strerror or str(error)
        raise InputError(f"{path} cannot be read: {why}", hint=REWRITE)


@contextlib.contextmanager
def open_layout(path: Path, tag: str, platform: Platform, manifest: str = "") -> Iterator[SourceImage]:
    """Return the image ``oci:PATH:TAG``; `manifest` (``sha256:…``): the one with that manifest, which TAG may no longer
    name. Raises InputError, ConflictError."""
    if not (path / INDEX).is_file():
        raise InputError(
            f"{path} is not an OCI layout, because it has no index.json",
            hint="skopeo copy docker://NAME:TAG oci:DIR makes one",
        )
    reference = f"oci:{path}:{tag}" if tag else f"oci:{path}"
    yield read_layout_image(LayoutFolder(path), tag, reference, path.absolute().name, platform, manifest)


def read_layout_image(
    files: LayoutFiles, tag: str, reference: str, stem: str, platform: Platform, manifest: str = ""
) -> SourceImage:
    """Return the image that a layout's index.json calls `tag` (empty: its only one), or that of a `manifest`
    (``sha256:…``); `stem` is the base name of files made from it."""
    digest = manifest or find_manifest(files, tag, reference, platform)
    document = read_document(files, digest, reference)
    value = m.parse_document(document, reference)
    if m.is_index(value):
        raise m.nested_index_error(reference)
    image = m.read_manifest(value, reference, lambda part: has_file(files, blob_path(part.digest)))
    content = read_document(files, f"sha256:{image.config.digest}", reference)
    found = image_documents.read_configuration(content, reference, platform)
    return image_documents.make_source_image(
        image,
        found,
        lambda part: partial(files.open, blob_path(f"sha256:{part.digest}")),
        reference=reference,
        origin=f"oci-layout:{digest}",
        manifest=digest,
        name=image_documents.file_name([stem, tag.rpartition(":")[2]]),
        documents=(document, content),
    )


def find_manifest(files: LayoutFiles, tag: str, reference: str, platform: Platform) -> str:
    """Return the digest (``sha256:…``) to which index.json leads from `tag`, through at most `m.INDEXES` indexes.
    Raises InputError, ConflictError."""
    value = m.parse_document(files.read(INDEX), reference, INDEX)
    entries = find_entries(value, tag, reference)
    check_platforms(files, entries, reference)
    return follow_entries(files, entries, reference, platform)


def check_platforms(files: LayoutFiles, entries: list[Part], reference: str) -> None:
    """Check that each entry of several of one name is an image of the platform that index.json states: skopeo takes the
    first one and does not read that. Raises InputError."""
    if len(entries) > MOST_ENTRIES:
        raise InputError(
            f"{reference} has {len(entries)} images of one name", hint="write one image into a layout of its own"
        )
    stated: dict[str, set[tuple[str, str]]] = {}
    try:
        for item in entries if len(entries) > 1 else ():
            platform, digest = item.part("platform"), f"sha256:{m.parse_descriptor(item).digest}"
            system, arch = (platform.optional(key).text() for key in ("os", "architecture"))
            if system and arch and f"{system}/{arch}" != NO_IMAGE:
                stated.setdefault(digest, set()).add((system, arch))
        for digest, platforms in stated.items():
            check_platform(files, digest, platforms, reference)
    except InvalidDocumentError as error:
        raise m.corrupt_document_error(reference, error, INDEX) from None


def check_platform(files: LayoutFiles, digest: str, platforms: set[tuple[str, str]], reference: str) -> None:
    """Check a manifest (``sha256:…``) that entries of index.json call an image of platforms (system, architecture).
    Raises InputError, InvalidDocumentError."""
    if not has_file(files, blob_path(digest)):
        return
    value = m.parse_document(read_document(files, digest, reference), reference)
    known: dict[str, Any] = {}
    if not m.is_index(value):
        config = f"sha256:{m.parse_descriptor(Part(value).part('config')).digest}"
        known = m.parse_document(read_document(files, config, reference), reference)
    for system, arch in sorted(platforms):
        found = "/".join((str(known.get("os", system)), str(known.get("architecture", arch))))
        if m.is_index(value) or found != f"{system}/{arch}":
            what = "an index of images" if m.is_index(value) else f"an image for {printable(found):.100}"
            raise InputError(
                f"{reference} has {what} that index.json calls one for {system}/{arch}",
                hint="programs differ in which of both they read: write one image into a layout of its own",
            )


def follow_entries(files: LayoutFiles, listed: list[Part], reference: str, platform: Platform) -> str:
    """Return the digest (``sha256:…``) to which entries of index.json lead. Raises as `find_manifest`."""

    def read(digest: str) -> dict[str, Any]:
        return m.parse_document(read_document(files, digest, reference), reference)

    digest = ""
    for _ in range(m.INDEXES):
        digest = f"sha256:{pick_manifest(listed, reference, platform, read).digest}"
        value = read(digest)
        if not m.is_index(value):
            break
        listed = m.list_index(value, reference)
    return digest


def read_document(files: LayoutFiles, digest: str, reference: str) -> bytes:
    """Return a small blob (``sha256:…``) of a layout. Raises InputError, also for other bytes than its digest names."""
    return image_documents.check_digest(files.read(blob_path(digest)), digest, reference)


def has_file(files: LayoutFiles, name: str) -> bool:
    """Return whether a file of a layout can be read."""
    try:
        with files.open(name):
            return True
    except InputError:
        return False


def blob_path(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def find_entries(value: Mapping[str, Any], tag: str, reference: str) -> list[Part]:
    """Return the entries of index.json that `tag` names: a whole name, or the tag of one."""
    try:
        listed = [item for item in m.list_index(value, reference, INDEX) if not is_referrer(item.expect(dict))]
        names = [item.part("annotations").optional(REF_NAME).text() for item in listed]
    except InvalidDocumentError as error:
        raise m.corrupt_document_error(reference, error, INDEX) from None
    there = sorted({name for name in names if name})
    if not listed:
        raise InputError(f"{reference} holds no image", hint="skopeo copy docker://NAME:TAG oci:DIR:TAG puts one in")
    if not tag:
        if len(set(names)) > 1:
            raise several_images_error(reference, there)
        return check_distinct(listed, reference)
    for called in (names, [name.rpartition(":")[2] for name in names]):
        if tag in called:
            return check_distinct([item for item, name in zip(listed, called, strict=True) if name == tag], reference)
    raise InputError(
        f"{reference} has no image with that name; it has {printable_list(there) or 'one without a name'}",
        hint="leave out the tag" if len(listed) == 1 else "name one of these",
    )


def check_distinct(entries: list[Part], reference: str) -> list[Part]:
    """Return entries of one name, which are of one image or of several architectures. Raises InputError for others."""
    if names_two_images(item.expect(dict) for item in entries):
        raise InputError(
            f"{reference} is two images: index.json has two entries of this name",
            hint="programs differ in which of both they read: write one image into a layout of its own",
        )
    return entries


def several_images_error(reference: str, names: list[str]) -> InputError:
    return InputError(
        f"{reference} holds several images: {printable_list(names) or 'without names'}",
        hint=f"name one: {shell_word(printable(f'{reference}:{names[0]}'))}"
        if names
        else "write one image into a layout of its own",
    )
