"""A read-only client of registries: manifests and blobs, over the OCI distribution API and from OCI layouts.

The site decides where an image is requested: mirrors of ``oci:HOST/PATH`` are registries
(``http://localhost:5000/some/path``) or folders with OCI layouts; without any it is the public home of that
registry, else the registry that the reference names. Formats: OCI distribution spec 1.1 ("Pull"), OCI image spec 1.1
(image-layout.md).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from envbuild.core.errors import InputError
from envbuild.net.download import Transfer
from envbuild.net.failures import NotFoundError, UnreachableError
from envbuild.net.miss import Miss, MissKind
from envbuild.net.registry.auth import Login, split_url
from envbuild.net.registry.layout_folder import LayoutFolder, digest_of
from envbuild.net.registry.media_types import DOCKER as DOCKER_TYPES
from envbuild.net.registry.media_types import DOCKER_INDEX, INDEX, OCI
from envbuild.net.registry.reference import Reference, parse_reference
from envbuild.net.site import Site, mirror_line, mirrors_setting
from envbuild.net.transport import Transport
from envbuild.net.urls import join, local_path, redact

if TYPE_CHECKING:
    import requests

INDEXES = (INDEX, DOCKER_INDEX)
LONGEST_REQUESTED = 300.0  # seconds that a registry may request with Retry-After
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
ACCEPT = ", ".join((*INDEXES, OCI.manifest, DOCKER_TYPES.manifest))  # without it a registry returns the oldest form


@dataclass(slots=True)
class RegistryTransport(Transport):
    """A transport that logs in where a registry requires it."""

    tries: int = 5
    login: Login | None = field(default=None, kw_only=True)

    def session(self) -> requests.Session:
        session = Transport.session(self)
        session.auth = self.login
        # Blobs that are manifests need it too: without it a registry returns the oldest form, or nothing.
        session.headers["Accept"] = f"{ACCEPT}, */*"
        return session


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """A repository of a registry: `url` is the registry's root, without a path."""

    url: str
    repository: str

    def __str__(self) -> str:
        return redact(f"{self.url}/{self.repository}")

    def blob(self, digest: str) -> str:
        return f"{self.url}/v2/{self.repository}/blobs/sha256:{digest}"

    def manifest_url(self, wanted: str) -> str:
        return f"{self.url}/v2/{self.repository}/manifests/{wanted}"

    def manifest(self, transport: Transport, wanted: str) -> bytes:
        return transport.read(self.manifest_url(wanted), ACCEPT, transport.limits.manifest).content

    def digest(self, transport: Transport, tag: str) -> str:
        """Return the digest of a tag by HEAD, which Docker Hub does not count as a pull; the manifest's own where the
        answer has none (distribution spec, "Checking if content exists in the registry": it is optional)."""
        with transport.get(self.manifest_url(tag), {"Accept": ACCEPT}, method="HEAD") as answer:
            named = answer.headers.get("Docker-Content-Digest", "")
        return named if DIGEST.fullmatch(named) else digest_of(self.manifest(transport, tag))


class UnansweredError(InputError):
    """No place of an image answered."""


@dataclass
class Repository:
    """The images of one repository, at the places that the site has for it."""

    reference: Reference
    site: Site
    plain: Transport  # for the token services that registries name
    transport: RegistryTransport = field(init=False)

    def __post_init__(self) -> None:
        plain = self.plain
        _, places = self.site.places(self.reference.origin)
        hosts = frozenset(split_url(place)[0] for place in places if local_path(place) is None)
        login = Login(plain, self.reference.registry, hosts, self.reference.repository)
        self.transport = RegistryTransport(
            self.site.network(),
            limits=replace(plain.limits, retry_after=LONGEST_REQUESTED),
            failures=plain.failures,
            login=login,
        )

    @cached_property
    def places(self) -> tuple[RegistryAddress | LayoutFolder, ...]:
        """The registries and folders to try, in this order. Raises InputError when there is none."""
        rest, mirrors = self.site.places(self.reference.origin)
        found: list[RegistryAddress | LayoutFolder] = []
        for mirror in mirrors:
            path = local_path(mirror)
            found += [self.address(join(mirror, rest))] if path is None else self.folders(path, rest)
        if not found:
            line = mirror_line(self.reference.origin)
            raise InputError(
                f"no place is known for {self.reference.origin}",
                hint=f"write a registry or a folder of OCI layouts into site.yaml:  {mirrors_setting(line)}",
                mirror_lines=(line,),
            )
        return tuple(found)

    @staticmethod
    def address(url: str) -> RegistryAddress:
        parts = urlsplit(url)
        return RegistryAddress(f"{parts.scheme}://{parts.netloc}", parts.path.strip("/"))

    def folders(self, mirror: Path, rest: str) -> list[RegistryAddress | LayoutFolder]:
        """Return the layouts that a mirror may contain: one per repository, or one for all, which then names each
        image."""
        reference = self.reference
        full = (f"{reference.name}:{reference.tag}", f"{reference.repository}:{reference.tag}")
        own = LayoutFolder(mirror / rest, (reference.tag, *full), True, mirror)
        return [own] if not rest else [own, LayoutFolder(mirror, full, False, mirror)]

    def manifest(self, wanted: str) -> bytes:
        """Return the manifest or index `wanted` (``sha256:<hex>`` or a tag); its digest is checked.

        Raises InputError with every place and its answer.
        """
        misses: list[Miss] = []
        for place in self.places:
            try:
                content = place.manifest(self.transport, wanted)
            except (NotFoundError, UnreachableError) as error:
                misses.append(error.miss(str(place)))
                continue
            found = digest_of(content)
            if not wanted.startswith("sha256:") or wanted == found:
                return content
            misses.append(Miss(str(place), MissKind.MISMATCH, f"digest mismatch: expected {wanted}, got {found}"))
        separator = "@" if wanted.startswith("sha256:") else ":"
        raise self.not_available(f"the image {self.reference.name}{separator}{wanted}", misses)

    def digest(self) -> str:
        """Return the digest (``sha256:…``) of the reference, of the first place that has it; it may be an index.

        Raises InputError; UnansweredError if no place answered.
        """
        if self.reference.digest:
            return self.reference.wanted
        misses: list[Miss] = []
        for place in self.places:
            try:
                return place.digest(self.transport, self.reference.tag)
            except (NotFoundError, UnreachableError) as error:
                misses.append(error.miss(str(place)))
        missing = self.not_available(f"the image {self.reference.name}:{self.reference.tag}", misses)
        if all(miss.kind is MissKind.UNREACHABLE for miss in misses):
            raise UnansweredError.of(missing.findings)
        raise missing

    def transfer(self, transfer: Transfer) -> Transfer:
        """Return `transfer` with the login of this repository."""
        return replace(transfer, transport=self.transport)

    def blobs(self, digest: str) -> list[str]:
        """Return the addresses and paths of a blob, for `Transfer.obtain`."""
        return [place.blob(digest) for place in self.places]

    def not_available(self, what: str, misses: Sequence[Miss]) -> InputError:
        """Return the error for an image or blob that no place provides."""
        tried = "".join(f"\n  {miss}" for miss in misses)
        login = next((miss.hint for miss in misses if miss.hint), "")
        message = f"{what} is not available; tried:{tried}"
        if login:
            return InputError(message, login)
        if any(miss.kind is MissKind.RATE_LIMITED for miss in misses):
            login = f"docker login {self.reference.registry}"
            return InputError(message, f"the rate limit is reached: wait and run it again, or log in: {login}")
        line = mirror_line(self.reference.origin)
        hint = f"write another place into site.yaml:  {mirrors_setting(line)}"
        # A registry answered, and has no such image; a folder without it proves nothing about the name.
        if any(miss.kind is MissKind.ABSENT and local_path(miss.place) is None for miss in misses):
            hint = f"check its name and tag (skopeo list-tags docker://{self.reference.name}), or {hint}"
        return InputError(message, hint, mirror_lines=(line,))


def obtain_blob(
    site: Site, transport: Transport, transfer: Transfer, reference: str, sha256: str, size: int = 0
) -> None:
    """Download one blob of the image `reference` (its manifest, configuration or a layer) into the store of `transfer`.

    Raises DownloadError with the places that were tried, InputError when none is known.
    """
    repository = Repository(parse_reference(reference), site, transport)
    places = repository.blobs(sha256)
    if size == 0:  # a manifest, perhaps, which registries have under another address
        places += [
            place.manifest_url(f"sha256:{sha256}") for place in repository.places if isinstance(place, RegistryAddress)
        ]
    repository.transfer(transfer).obtain(places, sha256, size or transfer.transport.limits.manifest)
