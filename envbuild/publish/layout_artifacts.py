"""The artifacts of an image in an OCI layout: their own entries, and the list ``sha256-<hex>`` for other programs."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envbuild.core.regular_file import read_bounded
from envbuild.net.registry.media_types import INDEX, REF_NAME
from envbuild.net.registry.referrers import fallback_tag
from envbuild.oci.document import MAX_DOCUMENT
from envbuild.publish.layout_index import new_index, parse_index, ref_name
from envbuild.publish.referrers import has_entry
from envbuild.publish.squashfs_artifact import Artifact


@dataclass(frozen=True, slots=True)
class ArtifactEntries:
    """Entries of the index for the artifacts of an image, and the blobs (hex → content) that they need."""

    entries: Sequence[dict[str, Any]] = ()
    contents: Mapping[str, bytes] = field(default_factory=dict)


def list_artifacts(
    subject: str, artifacts: Sequence[Artifact], index: Sequence[dict[str, Any]], blobs: Path, folder: Path
) -> ArtifactEntries:
    """Return the entries of the artifacts of an image (``sha256:…``), and of the list of them, which keeps what other
    publishers added. `blobs`: the open folder of the blobs of the layout `folder`. Raises PublishError."""
    if not artifacts:
        return ArtifactEntries()
    tag = fallback_tag(subject)
    found: list[dict[str, Any]] = []
    for entry in index:
        if ref_name(entry) == tag:
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # damaged: it is written again
                content = read_bounded(blobs / entry["digest"].removeprefix("sha256:"), MAX_DOCUMENT, follow=False)
                found = parse_index(content)
    own = [item.descriptor for item in artifacts]
    entries = [*(item for item in found if not has_entry(own, item.get("digest", ""))), *own]
    content = new_index(entries, folder)
    digest = hashlib.sha256(content).hexdigest()
    listed = {"mediaType": INDEX, "digest": f"sha256:{digest}", "size": len(content), "annotations": {REF_NAME: tag}}
    return ArtifactEntries([listed, *own], {digest: content})


def without_artifacts(
    index: Sequence[dict[str, Any]], subject: str, artifacts: Sequence[Artifact]
) -> list[dict[str, Any]]:
    """Return the entries of an index without the list of the image `subject` (``sha256:…``), and without
    `artifacts`."""
    own = {item.digest for item in artifacts}
    return [item for item in index if ref_name(item) != fallback_tag(subject) and item["digest"] not in own]
