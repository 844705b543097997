"""Manifests: the image of an architecture in an index, the configuration and the layers of an image.

Formats: OCI image spec 1.1, manifest.md, image-index.md, config.md, layer.md; distribution "Image Manifest V 2, Schema
2" and its list. Schema 1 (its layers have no digest of their own content and no configuration) is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from envbuild.core.errors import ConflictError, Finding, InputError

SYSTEM = "linux"
DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
LAYER = re.compile(
    r"application/vnd\.(oci\.image\.layer\.(nondistributable\.)?v1\.tar(\+gzip|\+zstd)?"
    r"|docker\.image\.rootfs\.(foreign\.)?diff\.tar(\.gzip|\.zstd)?)"
)
EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # sha256 of empty content
FOREIGN = re.compile(r"nondistributable|foreign")


class InvalidDocumentError(ValueError):
    """Document that violates its format."""


@dataclass(frozen=True, slots=True)
class BlobDescriptor:
    """Descriptor of a blob in a manifest: digest (hex), size in bytes and media type (`kind`)."""

    digest: str
    size: int
    kind: str


@dataclass(frozen=True, slots=True)
class ImageManifest:
    """Manifest of one image: its configuration and its layers, bottom first."""

    config: BlobDescriptor
    layers: tuple[BlobDescriptor, ...]


@dataclass(frozen=True, slots=True)
class BaseImageConfig:
    """Values of an image's configuration: `arch` (amd64, arm64), `system`, `env`, `created` (RFC 3339 or empty)."""

    arch: str
    system: str
    env: Mapping[str, str]
    created: str

    def fits(self, arch: str) -> bool:
        return (self.system, self.arch) == (SYSTEM, arch)


def parse_document(content: bytes, name: str) -> dict[str, Any]:
    """Return the JSON object of a manifest, an index or a configuration. Raises InputError, also for schema 1."""
    try:
        value = json.loads(content)
        if not isinstance(value, dict):
            raise InvalidDocumentError("it is not an object")
    except (ValueError, RecursionError) as error:
        raise corrupt_manifest_error(name, error) from None
    if value.get("schemaVersion") == 1:
        raise InputError(
            f"{name} is an image of Docker's manifest schema 1, which describes neither its configuration nor "
            "the content of its layers",
            hint="push it again with a current program (docker pull, docker push), and use that tag",
        )
    return value


def corrupt_manifest_error(name: str, error: Exception) -> InputError:
    """Return the error for a corrupt manifest, index or configuration."""
    return InputError(f"the manifest of {name} is damaged: {error}", hint="push the image again")


def choose_image(value: Mapping[str, Any], name: str, arch: str) -> str:
    """Return the digest (hex) of the image for `arch` in an index. Raises ConflictError if it has none, InputError."""
    found: list[str] = []
    try:
        for item in value["manifests"]:
            platform = item.get("platform") or {}
            have = f"{platform.get('os')}/{platform.get('architecture')}"
            if have == f"{SYSTEM}/{arch}":
                return parse_descriptor(item).digest
            found.append(have)
    except (InvalidDocumentError, KeyError, TypeError, AttributeError) as error:
        raise corrupt_manifest_error(name, error) from None
    raise other_architecture_error(name, arch, [have for have in found if have not in ("unknown/unknown", "None/None")])


def other_architecture_error(name: str, arch: str, found: list[str]) -> ConflictError:
    """Return the error for an image of other CPU architectures: `found`."""
    return ConflictError(
        f"{name} has no image for {SYSTEM}/{arch}, because it is made for {', '.join(sorted(set(found))) or 'nothing'}",
        hint="choose a base image, or a target, of the other CPU architecture",
    )


def read_manifest(
    value: Mapping[str, Any], name: str, has_blob: Callable[[BlobDescriptor], bool] = lambda _: False
) -> ImageManifest:
    """Return the parts of an image's manifest. Raises InputError with every layer that cannot be read or unpacked.

    has_blob: whether the blob of a foreign layer is stored with the image. A foreign layer is then like any other.
    """
    try:
        config, layers = parse_descriptor(value["config"]), tuple(parse_descriptor(item) for item in value["layers"])
        addresses = [[str(url) for url in item.get("urls") or ()] for item in value["layers"]]
    except (InvalidDocumentError, KeyError, TypeError, AttributeError) as error:
        raise corrupt_manifest_error(name, error) from None
    findings = []
    for number, (layer, urls) in enumerate(zip(layers, addresses, strict=True), 1):
        hint = "choose another image"
        if (urls or FOREIGN.search(layer.kind)) and not has_blob(layer):
            why = f"is a foreign layer: only its publisher has sha256:{layer.digest}"
            if urls:
                hint = f"{urls[0]} has it; an OCI layout with that file as blobs/sha256/{layer.digest} can be exported"
        elif layer.kind.endswith("+encrypted"):
            why = "is encrypted, and envbuild has no keys"
        elif not LAYER.fullmatch(layer.kind):
            why = f"is of the kind {layer.kind[:100]!r}, which envbuild does not unpack"
        elif not layer.size and layer.digest != EMPTY_SHA256:
            why = f"has size 0 in the manifest, but its digest sha256:{layer.digest} is not that of empty content"
        else:
            continue
        findings.append(Finding(f"layer {number} of {name} {why}", hint=hint))
    if findings:
        raise InputError.of(findings)
    return ImageManifest(config, layers)


def read_config(value: Mapping[str, Any], name: str) -> BaseImageConfig:
    """Return what an image's configuration specifies. Raises InputError."""
    try:
        lines = (value.get("config") or {}).get("Env") or []
        env = dict(line.split("=", 1) for line in lines)
        return BaseImageConfig(str(value["architecture"]), str(value["os"]), env, str(value.get("created") or ""))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise corrupt_manifest_error(name, error) from None


def parse_descriptor(value: Mapping[str, Any]) -> BlobDescriptor:
    """Return a descriptor. Raises InvalidDocumentError."""
    found = DIGEST.fullmatch(value["digest"])
    size, kind = value["size"], value["mediaType"]
    if not found or not isinstance(size, int) or isinstance(size, bool) or size < 0 or not isinstance(kind, str):
        raise InvalidDocumentError("a part of it has no sha256 digest, size and kind")
    return BlobDescriptor(found[1], size, kind)


def is_index(value: Mapping[str, Any]) -> bool:
    """Return whether a document lists several images."""
    return isinstance(value.get("manifests"), list)
