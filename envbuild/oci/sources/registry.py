"""Images of registries: the tag is resolved once, everything else is requested by digest.

Mirrors, certificates and logins are those of base images (`envbuild.net.registry.client`). Manifests and configurations
are cached as blobs of the store; layers come straight from the socket (`RegistryBlob`), and are cached on request
(`CachedBlob`). One that the store has is read there.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import IO, Any, cast
from urllib.parse import urlsplit

from envbuild.core.distributions import has_registry
from envbuild.core.errors import InputError, SpecError
from envbuild.core.store.store import Store
from envbuild.net.registry.client import RegistryAddress, Repository
from envbuild.net.registry.reference import DOCKER, Reference, parse_reference
from envbuild.net.transport import Transport
from envbuild.oci import manifest as m
from envbuild.oci.document import MAX_DOCUMENT
from envbuild.oci.sources import image_documents
from envbuild.oci.sources.base import SourceImage, SourceRequest
from envbuild.oci.sources.blob_stream import RegistryBlob
from envbuild.oci.sources.cached_blob import CachedBlob, has_blob_or_part, open_cached
from envbuild.oci.sources.platform import pick_manifest


@contextlib.contextmanager
def open_registry(rest: str, request: SourceRequest) -> Iterator[SourceImage]:
    """Return the image that ``docker://REST`` names.

    Raises SpecError, InputError, ConflictError (see `open_source`)."""
    reference, site, platform = parse_source_reference(rest), request.site, request.platform
    repository = Repository(reference, site, Transport(site.network()))
    place = _RepositoryReader(repository, request.store, request.keep, request.alone)
    name = printable_reference(reference)
    document, value = place.document(reference.wanted, name)
    for _ in range(m.INDEXES):
        if not m.is_index(value):
            break
        part = pick_manifest(m.list_index(value, name), name, platform, lambda digest: place.document(digest, name)[1])
        document, value = place.document(f"sha256:{part.digest}", name)
    if m.is_index(value):
        raise m.nested_index_error(name)
    digest = f"sha256:{hashlib.sha256(document).hexdigest()}"
    image = m.read_manifest(value, name, place.has_blob)
    content = place.blob(image.config, name)
    found = image_documents.read_configuration(content, name, platform)
    source = image_documents.make_source_image(
        image,
        found,
        lambda part: _Opener(place, part),
        reference=f"docker://{name}",
        origin=f"{reference.origin}@{digest}",
        manifest=digest,
        name=image_documents.file_name(
            [reference.repository.rpartition("/")[2], "" if reference.digest else reference.tag]
        ),
        places=len(place.repository.places) + any(map(place.has_cached, image.layers)),
        documents=(document, content),
    )
    yield replace(source, warnings=tuple(unprotected_transfers(repository)))


def unprotected_transfers(repository: Repository) -> Iterator[str]:
    """Yield a warning for each registry that the site reads over http. A transport reports those whose certificate is
    not checked."""
    settings = repository.transport.settings
    for place in repository.places:
        url = place.url if isinstance(place, RegistryAddress) else ""
        parts = urlsplit(url)
        if parts.scheme == "http" and settings.is_insecure(url):
            why = "is not encrypted (insecure_hosts of site.yaml, or trusted-host of pip)"
            yield f"the transfer from {parts.hostname} {why}"


def parse_source_reference(rest: str) -> Reference:
    """Return the reference in the text after ``docker://``: docker's form, where a name without a registry is
    docker.io's, or enroot's (``REGISTRY#PATH``). Raises SpecError."""
    before, _, _ = rest.partition("@sha256:")
    user, at, _ = before.rpartition("@")
    if at:
        raise SpecError(
            # the text before @ may be a password
            f"docker://…@{rest[len(user) + 1 :][:200]} names a user, and envbuild takes docker's own logins",
            hint=f"docker login; then write docker://{rest[len(user) + 1 :]}",
        )
    registry, hash_, path = rest.partition("#")
    if hash_:
        return parse_reference(f"{registry or DOCKER}/{path}")
    return parse_reference(rest if has_registry(rest) else f"{DOCKER}/{rest}")


def printable_reference(reference: Reference) -> str:
    return f"{reference.name}@sha256:{reference.digest}" if reference.digest else f"{reference.name}:{reference.tag}"


@dataclass(frozen=True, slots=True)
class _RepositoryReader:
    """Reader of one repository. `keeps`: layers are cached in the store. `alone`: nothing is read there."""

    repository: Repository
    store: Store
    keeps: bool
    alone: bool = False

    def document(self, wanted: str, name: str) -> tuple[bytes, dict[str, Any]]:
        """(content, value) of a manifest or index: ``sha256:…`` or a tag."""
        cached = self.read_cached(wanted)
        content = cached or self.repository.manifest(wanted)
        value = m.parse_document(content, name)
        return content if cached else self.keep(content), value

    def blob(self, part: m.BlobDescriptor, name: str) -> bytes:
        """Return a small blob, from the store if it has it. Raises InputError."""
        digest = f"sha256:{part.digest}"
        if content := self.read_cached(digest):
            return content
        damage: InputError | None = None
        for first in range(len(self.repository.places)):  # the next one may have the right content
            with RegistryBlob(self.repository, part, first) as stream:
                content = b""
                while len(content) <= MAX_DOCUMENT and (chunk := stream.read(1 << 20)):
                    content += chunk
            try:
                return self.keep(image_documents.check_digest(content, digest, name))
            except InputError as error:
                damage = error
        assert damage
        raise damage

    def has_blob(self, part: m.BlobDescriptor) -> bool:
        """Return whether the store, or a place of the repository, has a blob: its first byte can be read."""
        if not self.alone and self.store.has_blob(part.digest):
            return True
        try:
            with RegistryBlob(self.repository, part) as stream:
                return bool(stream.read(1))
        except InputError:
            return False

    def has_cached(self, part: m.BlobDescriptor) -> bool:
        """Return whether the store has a blob, or the beginning of it."""
        return not self.alone and has_blob_or_part(self.store, part.digest)

    def read_cached(self, wanted: str) -> bytes | None:
        """Return what the store has under that digest; None if nothing, or if `wanted` is a tag."""
        digest = wanted.removeprefix("sha256:")
        if self.alone or digest == wanted or not self.store.has_blob(digest):
            return None
        return self.store.read_document(digest)

    def keep(self, content: bytes) -> bytes:
        """Add content to the store, so that an image that is named by digest and has its packs needs no network."""
        with self.store.workdir() as work:
            (work / "document").write_bytes(content)
            self.store.add_blob(work / "document")
        return content


@dataclass(slots=True)
class _Opener:
    """Opener of a layer's blob: the store's own, or else at a place; each call tries another one first, because the
    content of the last one may be wrong."""

    place: _RepositoryReader
    part: m.BlobDescriptor
    times: int = field(default=0)

    def __call__(self) -> contextlib.AbstractContextManager[IO[bytes]]:
        self.times += 1
        store, digest, size = self.place.store, self.part.digest, self.part.size
        if not self.place.alone and (file := open_cached(store, digest, again=self.times > 1)):
            return file
        blob = RegistryBlob(self.place.repository, self.part, self.times - 1)
        found = CachedBlob(blob, store, digest, size) if self.place.keeps and size else blob
        return cast("contextlib.AbstractContextManager[IO[bytes]]", found)
