"""An OCI layout in a folder as a place of the images of a registry: a mirror of the site."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild.core.json_text import json_value
from envbuild.net.failures import NotFoundError, RefusedError, UnreachableError
from envbuild.net.registry.media_types import REF_NAME, is_referrer, names_two_images
from envbuild.net.transport import Transport

HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class LayoutFolder:
    """An OCI layout. `names`: the names that the image may have in index.json (``org.opencontainers.image.ref.name``);
    `exclusive`: it contains this repository only; `mirror`: the folder of the site that contains it."""

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
        entries = [entry for name in dict.fromkeys(self.names) for entry in found.get(name, ())]
        if not entries:  # an image without a name could be any
            other = ": its image without a name is found by its digest alone" if "" in found else ""
            raise NotFoundError(f"its index.json names no {wanted}{other}")
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
