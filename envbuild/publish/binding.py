"""The squashfs file of a published image in its own manifest, so that the digest of the image fixes the file, too.

The list of an image's artifacts is what a registry, or a mirror, answers: anything may be in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envbuild.oci.manifest import DIGEST, BlobDescriptor
from envbuild.publish.artifact_types import LOCK, RESOLUTION, SPEC
from envbuild.publish.published_texts import PublishedText
from envbuild.publish.squashfs_document import SquashfsDocument

FILE = "io.envbuild.squashfs"  # annotations of the manifest
TEXTS = {SPEC: "io.envbuild.spec", LOCK: "io.envbuild.lock", RESOLUTION: "io.envbuild.resolution"}


@dataclass(frozen=True, slots=True)
class Binding:
    """The digests (hex) in the manifest of an image: of its squashfs file (empty: none), and of its texts by media
    type."""

    file: str
    texts: Mapping[str, str]

    def fits(self, document: SquashfsDocument, layers: Sequence[BlobDescriptor]) -> bool:
        """Return whether an artifact has the squashfs file and the texts of the manifest, and no other ones."""
        texts = [layer for layer in layers if layer.kind in TEXTS]
        return document.sha256 == self.file and all(layer.digest == self.texts.get(layer.kind) for layer in texts)


def make_annotations(sha256: str, texts: Iterable[PublishedText]) -> dict[str, str]:
    """Return the annotations for a squashfs file and for the texts beside it."""
    found = {TEXTS[text.kind]: f"sha256:{hashlib.sha256(text.content).hexdigest()}" for text in texts}
    return {FILE: f"sha256:{sha256}", **found}


def read_binding(manifest: Mapping[str, Any]) -> Binding:
    """Return what a manifest has. An annotation that is not a digest counts as none."""
    listed = manifest.get("annotations")
    values = listed if isinstance(listed, dict) else {}

    def digest(name: str) -> str:
        value = values.get(name)
        found = DIGEST.fullmatch(value) if isinstance(value, str) else None
        return found[1] if found else ""

    return Binding(digest(FILE), {kind: digest(name) for kind, name in TEXTS.items()})
