"""A read-only client of registries: manifests and blobs, over the OCI distribution API and from OCI layouts.

The site decides where an image is requested: mirrors of ``oci:HOST/PATH`` are registries
(``http://localhost:5000/some/path``) or folders with OCI layouts; without any it is the public home of that
registry, else the registry that the reference names. Formats: OCI distribution spec 1.1 ("Pull"), OCI image spec 1.1
(image-layout.md).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from envbuild.core.errors import InputError
from envbuild.core.json_text import json_value
from envbuild.net.download import Transfer
from envbuild.net.failures import NotFoundError, RefusedError, UnreachableError
from envbuild.net.miss import Miss, MissKind
from envbuild.net.registry.auth import Login, split_url
from envbuild.net.registry.media_types import DOCKER as DOCKER_TYPES
from envbuild.net.registry.media_types import DOCKER_INDEX, INDEX, OCI, REF_NAME, is_referrer, names_two_images
from envbuild.net.registry.reference import Reference, parse_reference
from envbuild.net.site import Site, mirror_line, mirrors_setting
from envbuild.net.transport import Transport
from envbuild.net.urls import join, local_path, redact

if TYPE_CHECKING:
    import requests

INDEXES = (INDEX, DOCKER_INDEX)
LONGEST_REQUESTED = 300.0  # seconds that a registry may request with Retry-After
DIGEST, HEX = re.compile(r"sha256:[0-9a-f]{64}"), re.compile(r"[0-9a-f]{64}")
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


@dataclass(frozen=True, slots=True)
class LayoutFolder:
    """An OCI layout. `names`: the names that the image may have in index.json (``org.opencontainers.image.ref.name``);
    `exclusive`: it contains this repository only, so that a single image without a name is the requested one; `mirror`:
    the folder of the site that contains it."""

    path: Path
    names: tuple[str, ...]
    exclusive: bool
    mirror: Path | None = None

    def __str__(self) -> str:
        return str(self.path)

    def blob(self, digest: str) -> str:
        """Return the path of a blob (hex). A link that leads out of the layout gets a path of no file, with the reason
        as its name: not even the digest of its target may get into a message."""
        path, root = self.path / "blobs" / "sha256" / digest, self.path.resolve()
        if not HEX.fullmatch(digest):
            return str(root / "a digest that is none")
        if not Path(os.path.realpath(path)).is_relative_to(root):
            return str(root / f"{digest} is a link out of the layout")
        return str(path)

    def document(self, transport: Transport, digest: str) -> bytes:
        """Return a manifest or index (hex). Raises RefusedError for one that is damaged; its own digest is not named,
        because another user may have put a link to a private file there."""
        content = transport.read(self.blob(digest), limit=transport.limits.manifest).content
        if hashlib.sha256(content).hexdigest() != digest:
            raise RefusedError(f"its blob {digest} is damaged")
        return content

    def manifest(self, transport: Transport, wanted: str) -> bytes:
        """Return the manifest or index `wanted` (``sha256:<hex>`` or a tag); of a name with images for
        several architectures an index of them, which the layout has no blob of. Raises RefusedError, NotFoundError."""
        if wanted.startswith("sha256:"):
            return self.joined(transport, wanted) or self.document(transport, wanted.removeprefix("sha256:"))
        found = self.named(transport)
        only = self.exclusive and sum(map(len, found.values())) == 1  # it may have no name
        names = dict.fromkeys((*self.names, *([""] if only else [])))
        entries = [entry for name in names for entry in found.get(name, ())]
        if not entries:
            raise NotFoundError(f"its index.json names no {wanted}")
        if len(entries) > 1:
            if names_two_images(entries):
                raise RefusedError(f"its index.json has two images named {wanted}")
            return join_entries(entries)
        return self.document(transport, str(entries[0]["digest"]).removeprefix("sha256:"))

    def joined(self, transport: Transport, wanted: str) -> bytes:
        """Return the index (``sha256:<hex>``) of all images of a name; empty if the layout has a blob of that digest,
        or no such name."""
        if os.path.lexists(self.path / "blobs" / "sha256" / wanted.removeprefix("sha256:")):
            return b""
        try:
            found = self.named(transport)
        except (RefusedError, NotFoundError, UnreachableError):
            return b""
        indexes = (join_entries(entries) for entries in found.values())
        return next((content for content in indexes if digest_of(content) == wanted), b"")

    def named(self, transport: Transport) -> dict[str, list[dict[str, Any]]]:
        """Return the entries of index.json by their names. Raises RefusedError, NotFoundError."""
        if not (self.path / "oci-layout").is_file():
            if self.mirror and not has_entries(self.mirror):
                raise UnreachableError(f"{self.mirror} is missing or empty: is its file system mounted?")
            raise NotFoundError("no OCI layout")
        found: dict[str, list[dict[str, Any]]] = {}
        try:
            for item in json_value(transport.read(str(self.path / "index.json")).content)["manifests"]:
                if self.exclusive and is_referrer(item):  # beside an image its artifacts are listed
                    continue
                if not HEX.fullmatch(str(item["digest"]).removeprefix("sha256:")):
                    raise ValueError("a digest")
                found.setdefault((item.get("annotations") or {}).get(REF_NAME, ""), []).append(item)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RefusedError("its index.json is malformed") from None
        return found

    def digest(self, transport: Transport, tag: str) -> str:
        """Return the digest of the manifest or index of a tag."""
        return digest_of(self.manifest(transport, tag))


class UnansweredError(InputError):
    """No place of an image answered."""


def has_entries(folder: Path) -> bool:
    """Return whether a folder can be read, and has something in it: a place to mount a file system has nothing."""
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


def join_entries(entries: Sequence[dict[str, Any]]) -> bytes:
    """Return an index of entries of a layout."""
    return json.dumps({"schemaVersion": 2, "manifests": entries}).encode()


def digest_of(content: bytes) -> str:
    """Return ``sha256:…`` of a document."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


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
        login = Login(plain, self.reference.registry, hosts)
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
