"""The parts of an image in an OCI layout, as they are published."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envbuild.oci import manifest as m
from envbuild.oci.config import canonical_json
from envbuild.oci.manifest import BlobDescriptor
from envbuild.publish.pack_blobs import FileSlice


@dataclass(frozen=True, slots=True)
class LayoutParts:
    """One image of the layout `folder`: its `manifest` with media type and digest (``sha256:…``), and the `blobs` that
    the manifest names, each once, the configuration first."""

    folder: Path
    manifest: bytes
    kind: str
    digest: str
    blobs: tuple[BlobDescriptor, ...]

    @classmethod
    def read(cls, folder: Path) -> LayoutParts:
        """Return the only image of a layout that envbuild wrote."""
        (entry,) = json.loads((folder / "index.json").read_bytes())["manifests"]
        digest = str(entry["digest"])
        content = (folder / "blobs/sha256" / digest.removeprefix("sha256:")).read_bytes()
        image = m.read_manifest(m.parse_document(content, str(folder)), str(folder))
        blobs = {part.digest: part for part in (image.config, *image.layers)}
        return cls(folder, content, str(entry["mediaType"]), digest, tuple(blobs.values()))

    def annotate(self, annotations: Mapping[str, str]) -> LayoutParts:
        """Return the image with more annotations in its manifest."""
        value = json.loads(self.manifest)
        value["annotations"] = {**value.get("annotations", {}), **annotations}
        content = canonical_json(value)
        return replace(self, manifest=content, digest=f"sha256:{hashlib.sha256(content).hexdigest()}")

    def path(self, part: BlobDescriptor) -> Path:
        """Return the file of a blob."""
        return self.folder / "blobs/sha256" / part.digest

    @property
    def subject(self) -> dict[str, Any]:
        """The descriptor of the image, for artifacts that belong to it."""
        return {"mediaType": self.kind, "digest": self.digest, "size": len(self.manifest)}

    def slices(self) -> list[FileSlice]:
        """Return the files of the blobs; the layout lacks those that its target has (`open_built_layout`)."""
        return [FileSlice(part.digest, part.size, path) for part in self.blobs if (path := self.path(part)).is_file()]
