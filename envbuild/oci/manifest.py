"""What manifests say: the image of an architecture in an index, the configuration and the layers of an image.

Formats: OCI image spec 1.1, manifest.md, image-index.md, config.md, layer.md; distribution "Image Manifest V 2, Schema
2" and its list. Schema 1 (its layers have no digest of their own content and no configuration) is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from envbuild.core.errors import ConflictError, Finding, InputError

SYSTEM = "linux"
DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
LAYER = re.compile(
    r"application/vnd\.(oci\.image\.layer\.v1\.tar(\+gzip|\+zstd)?|docker\.image\.rootfs\.diff\.tar(\.gzip|\.zstd)?)"
)
NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # the sha256 of no bytes
FOREIGN = re.compile(r"nondistributable|foreign")


class Damaged(ValueError):
    """A document is not what its format says."""


@dataclass(frozen=True, slots=True)
class Part:
    """A descriptor: the digest (hex), bytes and media type of a blob."""

    digest: str
    size: int
    kind: str


@dataclass(frozen=True, slots=True)
class Image:
    """The manifest of one image: its configuration and its layers, bottom first."""

    config: Part
    layers: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Config:
    """Of an image's configuration: `arch` (amd64, arm64), `system`, `env`, `created` (RFC 3339, may be empty)."""

    arch: str
    system: str
    env: Mapping[str, str]
    created: str

    def fits(self, arch: str) -> bool:
        return (self.system, self.arch) == (SYSTEM, arch)


def document(content: bytes, name: str) -> dict[str, Any]:
    """The JSON object of a manifest, an index or a configuration. Raises InputError, also for schema 1."""
    try:
        value = json.loads(content)
        if not isinstance(value, dict):
            raise Damaged("it is no object")
    except (ValueError, RecursionError) as error:
        raise damaged(name, error) from None
    if value.get("schemaVersion") == 1:
        raise InputError(
            f"{name} is an image of Docker's manifest schema 1, which tells neither its configuration nor what its "
            "layers hold",
            hint="have it pushed anew by a current program (docker pull, docker push), and use that tag",
        )
    return value


def damaged(name: str, error: Exception) -> InputError:
    return InputError(f"the manifest of {name} is damaged: {error}", hint="have the image pushed anew")


def choose(value: Mapping[str, Any], name: str, arch: str) -> str:
    """The digest (hex) of the image for `arch` in an index. Raises ConflictError when it has none, InputError."""
    found: list[str] = []
    try:
        for item in value["manifests"]:
            platform = item.get("platform") or {}
            have = f"{platform.get('os')}/{platform.get('architecture')}"
            if have == f"{SYSTEM}/{arch}":
                return part(item).digest
            found.append(have)
    except (Damaged, KeyError, TypeError, AttributeError) as error:
        raise damaged(name, error) from None
    raise other_architecture(name, arch, [have for have in found if have not in ("unknown/unknown", "None/None")])


def other_architecture(name: str, arch: str, found: list[str]) -> ConflictError:
    return ConflictError(
        f"{name} has no image for {SYSTEM}/{arch}, because it is made for {', '.join(sorted(set(found))) or 'nothing'}",
        hint="choose a base image, or a target, of the other CPU architecture",
    )


def image(value: Mapping[str, Any], name: str) -> Image:
    """The parts of an image's manifest. Raises InputError with every layer that cannot be had or unpacked."""
    try:
        config, layers = part(value["config"]), tuple(part(item) for item in value["layers"])
        foreign = [bool(item.get("urls")) for item in value["layers"]]
    except (Damaged, KeyError, TypeError, AttributeError) as error:
        raise damaged(name, error) from None
    findings = []
    for number, (layer, elsewhere) in enumerate(zip(layers, foreign, strict=True), 1):
        if elsewhere or FOREIGN.search(layer.kind):
            why = "lies outside of the registry (a foreign layer)"
        elif layer.kind.endswith("+encrypted"):
            why = "is encrypted, and envbuild holds no keys"
        elif not LAYER.fullmatch(layer.kind):
            why = f"is of the kind {layer.kind[:100]!r}, which envbuild does not unpack"
        elif not layer.size and layer.digest != NOTHING:
            why = f"is said to have 0 bytes, which is not so: its digest is sha256:{layer.digest}"
        else:
            continue
        findings.append(Finding(f"layer {number} of {name} {why}", hint="choose another image"))
    if findings:
        raise InputError.of(findings)
    return Image(config, layers)


def config(value: Mapping[str, Any], name: str) -> Config:
    """What a configuration says. Raises InputError."""
    try:
        lines = (value.get("config") or {}).get("Env") or []
        env = dict(line.split("=", 1) for line in lines)
        return Config(str(value["architecture"]), str(value["os"]), env, str(value.get("created") or ""))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise damaged(name, error) from None


def part(value: Mapping[str, Any]) -> Part:
    """A descriptor. Raises Damaged."""
    found = DIGEST.fullmatch(value["digest"])
    size, kind = value["size"], value["mediaType"]
    if not found or not isinstance(size, int) or isinstance(size, bool) or size < 0 or not isinstance(kind, str):
        raise Damaged("a part of it has no sha256 digest, size and kind")
    return Part(found[1], size, kind)


def is_index(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("manifests"), list)
