"""Media types of images.

Formats: OCI image spec 1.1, media-types.md; Docker's: distribution, "Image Manifest V 2, Schema 2".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

NO_IMAGE = "unknown/unknown"  # platform of attestations, which an index lists beside the images
REF_NAME = "org.opencontainers.image.ref.name"
INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
SQUASHFS_FAMILY = "application/vnd.envbuild.squashfs."  # kinds of artifacts with a squashfs file; v1, v2 and so on
FALLBACK = re.compile(r"sha256-[0-9a-f]{64}")  # the tag that lists the artifacts of an image


@dataclass(frozen=True, slots=True)
class MediaTypes:
    """Media types of the parts of an image; `layers` by compression."""

    manifest: str
    config: str
    layers: Mapping[str, str]


OCI = MediaTypes(
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.config.v1+json",
    {
        "none": "application/vnd.oci.image.layer.v1.tar",
        "gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
        "zstd": "application/vnd.oci.image.layer.v1.tar+zstd",
    },
)
DOCKER = MediaTypes(
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.container.image.v1+json",
    {
        "none": "application/vnd.docker.image.rootfs.diff.tar",
        "gzip": "application/vnd.docker.image.rootfs.diff.tar.gzip",
    },
)


def is_referrer(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry of a layout's index is an artifact of an image, or a list of them, and not an image. One
    with a name is an image: skopeo takes it by that, of any type."""
    names = entry.get("annotations")
    name = names.get(REF_NAME) if isinstance(names, dict) else None
    if isinstance(name, str) and name:
        return bool(FALLBACK.fullmatch(name))
    return bool(entry.get("artifactType"))


def names_two_images(entries: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether entries of one name in a layout's index are two images of one architecture, or of one that is not
    known: skopeo takes the first one, containerd the last of which the machine has the variant."""
    digests: dict[str, set[str]] = {}
    for entry in entries:
        platform = entry.get("platform")
        known = platform if isinstance(platform, dict) else {}
        name = "/".join(str(known.get(key) or "") for key in ("os", "architecture"))
        if name == "linux/arm":  # its variants are architectures that one image is made for beside each other
            name = f"{name}/{known.get('variant') or ''}"
        if name == NO_IMAGE and not (entry.get("annotations") or {}).get(REF_NAME):  # an attestation of BuildKit
            continue
        digests.setdefault(name, set()).add(str(entry.get("digest")))
    several = len(set().union(*digests.values())) > 1
    return several and (max(map(len, digests.values())) > 1 or not digests.keys().isdisjoint(("/", NO_IMAGE)))
