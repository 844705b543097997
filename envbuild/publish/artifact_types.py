"""Media types of what envbuild publishes beside an image: artifacts of the OCI image spec 1.1, manifest.md."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from envbuild.core.signing.statement import PAYLOAD
from envbuild.net.registry.media_types import OCI, SQUASHFS_FAMILY

SQUASHFS = (
    "application/vnd.envbuild.squashfs.v1"  # an artifact: the packs of a squashfs file, and how it is made of them
)
DOCUMENT = "application/vnd.envbuild.squashfs.index.v1+json"
TABLES = "application/vnd.envbuild.squashfs.tables.v1"
WHOLE = "application/vnd.envbuild.squashfs.file.v1"  # an artifact, and its only layer: the squashfs file
SPEC = "application/vnd.envbuild.spec.v1+yaml"
LOCK = "application/vnd.envbuild.lock.v1+yaml"
STATEMENT = PAYLOAD  # an artifact: the provenance of an image
SBOM = "application/vnd.cyclonedx+json"  # an artifact
RESOLUTION = "application/vnd.envbuild.resolution.v1+json"
CONFIG = OCI.config  # of an image that is published without its layers
FAMILY = SQUASHFS_FAMILY  # and v2 and so on, of a newer envbuild
TITLE = "org.opencontainers.image.title"
EMPTY = b"{}"  # the configuration of an artifact
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"


def describe(kind: str, digest: str, size: int, title: str = "") -> dict[str, Any]:
    """Return the descriptor of a blob; `digest` is bare hex."""
    found = {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}
    return {**found, "annotations": {TITLE: title}} if title else found


def artifact_manifest(
    kind: str,
    layers: list[dict[str, Any]],
    subject: dict[str, Any] | None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the manifest of an artifact of `kind`. `subject`: the descriptor of the image that it belongs to."""
    return {
        "schemaVersion": 2,
        "mediaType": OCI.manifest,
        "artifactType": kind,
        "config": describe(EMPTY_TYPE, hashlib.sha256(EMPTY).hexdigest(), len(EMPTY)),
        "layers": layers,
        **({"subject": subject} if subject else {}),
        **({"annotations": dict(annotations)} if annotations else {}),
    }
