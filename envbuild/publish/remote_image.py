"""A published image where it is: a repository of a registry with its mirrors, or a layout in a folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envbuild.core.console import Reporter
from envbuild.core.distributions import PATHS
from envbuild.core.errors import EnvbuildError, InputError, SpecError
from envbuild.net.failures import NotFoundError, UnreachableError
from envbuild.net.miss import Miss
from envbuild.net.registry import layout_folder
from envbuild.net.registry.client import Repository
from envbuild.net.registry.media_types import OCI
from envbuild.net.registry.referrers import list_referrers
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from envbuild.oci import manifest as m
from envbuild.oci.document import Part
from envbuild.oci.sources import image_documents
from envbuild.oci.sources.kinds import PREFIXES
from envbuild.oci.sources.oci_layout import INDEX, LayoutFolder, blob_path, check_platforms, find_entries
from envbuild.oci.sources.open import parse_source, split_path
from envbuild.oci.sources.platform import Platform, pick_manifest
from envbuild.oci.sources.registry import parse_source_reference, printable_reference

TASK = "published"


@dataclass(frozen=True, slots=True)
class ImageDocument:
    """A manifest: its digest (``sha256:…``) and value, the digests of the indexes that led to it (`above`), and its
    size in bytes."""

    digest: str
    value: Mapping[str, Any]
    above: tuple[str, ...] = ()
    size: int = 0

    @property
    def descriptor(self) -> dict[str, Any]:
        """The descriptor of the manifest, for artifacts that belong to it."""
        kind = self.value.get("mediaType")
        return {"mediaType": kind if isinstance(kind, str) else OCI.manifest, "digest": self.digest, "size": self.size}


@dataclass(frozen=True, slots=True)
class RegistryImage:
    """An image of a registry. `source`: as `envbuild.oci.sources.open` names it."""

    repository: Repository
    source: str
    name: str
    stem: str

    @property
    def transport(self) -> Transport:
        return self.repository.transport

    @property
    def pinned(self) -> bool:
        """Return whether the image was named by its digest."""
        return bool(self.repository.reference.digest)

    def read(self, wanted: str) -> ImageDocument:
        """Return a manifest or an index: ``sha256:…``, or a tag. Raises InputError."""
        content = self.repository.manifest(wanted)
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        return ImageDocument(digest, m.parse_document(content, self.name), size=len(content))

    def find(self, platform: Platform) -> ImageDocument:
        """Return the manifest of the image for a platform. Raises InputError, ConflictError."""
        return follow_indexes(self, self.read(self.repository.reference.wanted), platform)

    def referrers(self, digest: str, kind: str) -> list[Any]:
        """Return the descriptors of the artifacts of an image (``sha256:…``), of the first place that has some.

        Raises InputError if no place answers.
        """
        misses: list[Miss] = []
        places = self.repository.places
        for place in places:
            try:
                if found := list_referrers(place, self.transport, digest, kind):
                    return found
            except UnreachableError as error:
                misses.append(error.miss(str(place)))
        if misses and len(misses) == len(places):
            raise self.repository.not_available(f"the list of artifacts of {self.name}", misses)
        return []

    def tagged(self, tag: str) -> ImageDocument | None:
        """Return the manifest of another tag; None if there is none, or none that can be read."""
        try:
            return self.read(tag)
        except EnvbuildError:
            return None

    def pin(self, digest: str) -> str:
        """Return the source of the manifest `digest` (``sha256:…``) of this image, also after its tag moved."""
        return f"docker://{self.repository.reference.name}@{digest}"

    def places(self, digest: str) -> list[str]:
        """Return the addresses of a blob (hex), or its paths."""
        return self.repository.blobs(digest)

    def not_available(self, what: str, misses: list[Miss]) -> InputError:
        """Return the error for a blob that no place provides."""
        return self.repository.not_available(what, misses)


@dataclass(frozen=True, slots=True)
class LayoutImage:
    """An image of a layout in the folder `path`."""

    path: Path
    tag: str
    source: str
    name: str
    stem: str
    transport: Transport

    @property
    def pinned(self) -> bool:
        """Return False: a layout is named by its folder and a tag."""
        return False

    def read(self, wanted: str) -> ImageDocument:
        """Return a manifest or an index (``sha256:…``). Raises InputError."""
        content = image_documents.check_digest(LayoutFolder(self.path).read(blob_path(wanted)), wanted, self.name)
        return ImageDocument(wanted, m.parse_document(content, self.name), size=len(content))

    def find(self, platform: Platform) -> ImageDocument:
        """Return the manifest of the image for a platform. Raises InputError, ConflictError."""
        value = m.parse_document(LayoutFolder(self.path).read(INDEX), self.name, INDEX)
        listed = find_entries(value, self.tag, self.name)
        check_platforms(LayoutFolder(self.path), listed, self.name)
        part = pick_manifest(listed, self.name, platform, lambda digest: self.read(digest).value)
        return follow_indexes(self, self.read(f"sha256:{part.digest}"), platform)

    def referrers(self, digest: str, kind: str) -> list[Any]:
        """Return the descriptors of the artifacts of an image (``sha256:…``). Raises InputError."""
        try:
            return list_referrers(layout_folder.LayoutFolder(self.path, (), False), self.transport, digest, kind)
        except UnreachableError as error:
            raise InputError(f"the list of artifacts of {self.name}: {error}", hint="publish the image again") from None

    def tagged(self, tag: str) -> ImageDocument | None:
        """Return the manifest with another name; None if there is none, or none that can be read."""
        try:
            content = layout_folder.LayoutFolder(self.path, (tag,), False).manifest(self.transport, tag)
            return ImageDocument(layout_folder.digest_of(content), m.parse_document(content, self.name))
        except (NotFoundError, UnreachableError, EnvbuildError):
            return None

    def pin(self, digest: str) -> str:
        """Return the source of this image: a source names no manifest of a layout, so `open_source` gets the digest."""
        return self.source

    def places(self, digest: str) -> list[str]:
        """Return the path of a blob (hex). Raises InputError for a link out of the layout, and for no regular file."""
        name = blob_path(digest)
        path = LayoutFolder(self.path).find(name) if os.path.lexists(self.path / name) else self.path / name
        return [str(path.absolute())]

    def not_available(self, what: str, misses: list[Miss]) -> InputError:
        """Return the error for a blob that the layout lacks."""
        tried = "".join(f"\n  {miss}" for miss in misses)
        return InputError(f"{what} is not available; tried:{tried}", hint="publish the image again")


RemoteImage = RegistryImage | LayoutImage


def follow_indexes(image: RemoteImage, found: ImageDocument, platform: Platform) -> ImageDocument:
    """Return the manifest that an index leads to. Raises InputError, ConflictError."""
    for _ in range(m.INDEXES):
        if not m.is_index(found.value):
            return found
        part = pick_manifest(
            m.list_index(found.value, image.name), image.name, platform, lambda digest: image.read(digest).value
        )
        above = (*found.above, found.digest)
        found = replace(image.read(f"sha256:{part.digest}"), above=above)
    raise m.nested_index_error(image.name)


def open_remote(text: str, site: Site) -> RemoteImage | None:
    """Return the image that a user named: ``[docker://]REGISTRY/PATH[:TAG][@sha256:…]``, ``oci:DIR[:TAG]``, ``./DIR``.

    None for a source of another kind. Raises SpecError, InputError.
    """
    source = parse_source(text if is_source(text) else f"docker://{text}")
    if source is None or source.kind not in ("registry", "layout"):
        return None
    transport = Transport(site.network())
    if source.kind == "layout":
        path, tag = split_path(source.rest)
        name = f"oci:{path}:{tag}" if tag else f"oci:{path}"
        stem = image_documents.file_name([path.absolute().name, tag])
        return LayoutImage(path, tag, name, name, stem, transport)
    reference = parse_source_reference(source.rest)
    name = printable_reference(reference)
    stem = image_documents.file_name(
        [reference.repository.rpartition("/")[2], "" if reference.digest else reference.tag]
    )
    return RegistryImage(Repository(reference, site, transport), f"docker://{name}", name, stem)


def require_remote(text: str, site: Site) -> RemoteImage:
    """Return the image of `open_remote`. Raises SpecError for a source of another kind, InputError."""
    image = open_remote(text, site)
    if image is None:
        raise SpecError(f"{text[:200]!r} is not an image of a registry or a layout", hint="docker://NAME:TAG, oci:DIR")
    return image


@contextlib.contextmanager
def report_reading(image: RemoteImage, reporter: Reporter) -> Iterator[None]:
    """Report, until the context ends, that the small documents of an image are read: a place may be slow."""
    reporter.start(TASK, f"reading what was published as {image.name}")
    try:
        yield
    finally:
        reporter.finish(TASK)


def is_source(text: str) -> bool:
    """Return whether a text has the form of a source of `envbuild.oci.sources`, and is not a bare reference."""
    return text.startswith((*PREFIXES, *PATHS))


def entries_of(referrers: list[Any]) -> Iterator[tuple[str, m.BlobDescriptor]]:
    """Yield (kind, descriptor) of the artifacts in a list; malformed entries are left out."""
    for entry in referrers:
        try:
            yield Part(entry).part("artifactType").text(), m.parse_descriptor(Part(entry))
        except ValueError:
            continue
