"""The parts of an image, as they are published: its manifest, and the content of its blobs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Protocol

from envbuild.core.json_text import canonical_json
from envbuild.net.registry.media_types import OCI
from envbuild.oci import manifest as m
from envbuild.oci.manifest import BlobDescriptor
from envbuild.publish.pack_blobs import FileSlice
from envbuild.publish.squashfs_artifact import Artifact


class BlobContent(Protocol):
    """The content of the blob `digest` (hex): `size` bytes from `start` on of what `open` returns."""

    @property
    def digest(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def start(self) -> int: ...

    def open(self) -> AbstractContextManager[IO[bytes]]:
        """Return a file that can be read again from any position."""
        ...


@dataclass(frozen=True, slots=True)
class ImageParts:
    """One image: its `manifest` with media type and digest (``sha256:…``), the `blobs` that the manifest names, each
    once, the configuration first, and the `contents` of those that its target may lack. `platform`: of its entry in an
    index."""

    manifest: bytes
    kind: str
    digest: str
    blobs: tuple[BlobDescriptor, ...]
    contents: Sequence[BlobContent]
    platform: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path) -> ImageParts:
        """Return the only image of a layout that envbuild wrote. It lacks blobs that its target has
        (`open_built_layout`)."""
        (entry,) = json.loads((folder / "index.json").read_bytes())["manifests"]
        digest, there = str(entry["digest"]), folder / "blobs/sha256"
        content = (there / digest.removeprefix("sha256:")).read_bytes()
        image = m.read_manifest(m.parse_document(content, str(folder)), str(folder))
        blobs = {part.digest: part for part in (image.config, *image.layers)}
        files = [FileSlice(part.digest, part.size, there / part.digest) for part in blobs.values()]
        contents = [file for file in files if file.path.is_file()]
        return cls(content, str(entry["mediaType"]), digest, tuple(blobs.values()), contents, entry["platform"])

    def layers(self) -> Sequence[BlobDescriptor]:
        """Return the blobs of the layers, bottom first."""
        return m.read_manifest(m.parse_document(self.manifest, self.digest), self.digest).layers

    def layers_in(self, folder: Path) -> list[FileSlice]:
        """Return the blob of each layer in the layout that was read; that has no file of those that the target has."""
        there = folder / "blobs/sha256"
        return [FileSlice(layer.digest, layer.size, there / layer.digest) for layer in self.layers()]

    @classmethod
    def of_artifact(cls, artifact: Artifact, platform: Mapping[str, str]) -> ImageParts:
        """Return an artifact that is published under a tag in the place of an image."""
        blobs = tuple(BlobDescriptor(blob.digest, blob.size, artifact.kind) for blob in artifact.blobs)
        return cls(artifact.manifest, OCI.manifest, artifact.digest, blobs, artifact.blobs, platform)

    @property
    def architecture(self) -> str:
        """The CPU architecture that the image is made for."""
        return self.platform["architecture"]

    def annotate(self, annotations: Mapping[str, str]) -> ImageParts:
        """Return the image with more annotations in its manifest."""
        value = json.loads(self.manifest)
        value["annotations"] = {**value.get("annotations", {}), **annotations}
        content = canonical_json(value)
        return replace(self, manifest=content, digest=f"sha256:{hashlib.sha256(content).hexdigest()}")

    @property
    def subject(self) -> dict[str, Any]:
        """The descriptor of the image, for artifacts that belong to it."""
        return {"mediaType": self.kind, "digest": self.digest, "size": len(self.manifest)}
