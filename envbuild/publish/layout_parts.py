"""The parts of an image in an OCI layout, as they are published."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from envbuild.oci import manifest as m
from envbuild.oci.manifest import BlobDescriptor


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

    def path(self, part: BlobDescriptor) -> Path:
        """Return the file of a blob."""
        return self.folder / "blobs/sha256" / part.digest
