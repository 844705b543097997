"""Configurations of third-party images, and the image that one forms with its layers.

Formats: OCI image spec 1.1, config.md; Docker image specification 1.2, "Image JSON Description". The fields are the
same; Docker's writers leave empty ones out or write null.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, Any

from envbuild.core.errors import InputError
from envbuild.oci import manifest as m
from envbuild.oci.config import ImageConfig, parse_rfc3339
from envbuild.oci.sources.base import SourceImage, SourceLayer
from envbuild.oci.sources.platform import Platform, wrong_platform_error

DIFF_ID = re.compile(r"sha256:[0-9a-f]{64}")
MAX_DOCUMENT = 16 << 20  # bytes of a manifest or configuration; real ones have some ten thousand


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """Content of a configuration. `identity`: its digest; `diff_ids`: of the layers, bottom first."""

    identity: str
    config: ImageConfig
    created: int
    diff_ids: tuple[str, ...]
    notes: tuple[str, ...]


def read_configuration(content: bytes, name: str, platform: Platform) -> SourceConfig:
    """Parse a configuration. Raises InputError for a corrupt one, ConflictError for an image of another platform than
    the requested one."""
    if len(content) > MAX_DOCUMENT:
        raise m.corrupt_manifest_error(name, m.InvalidDocumentError(f"its configuration has {len(content)} bytes"))
    identity = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return parse_configuration(m.parse_document(content, name), identity, name, platform)


def parse_configuration(value: Mapping[str, Any], identity: str, name: str, platform: Platform) -> SourceConfig:
    """Return the configuration from a document that is parsed already. Raises as `read_configuration`."""
    try:
        arch, system = str(value["architecture"]), str(value["os"])
        variant = str(value.get("variant") or "")
        given = value.get("config") or {}
        lines = parse_texts(given.get("Env"))
        env = dict(line.split("=", 1) for line in lines if "=" in line)
        found = ImageConfig(
            architecture=arch,
            env=env,
            cmd=parse_command(given.get("Cmd")),
            workdir=parse_text(given.get("WorkingDir")) or "/",
            labels={str(key): parse_text(item) for key, item in (given.get("Labels") or {}).items()},
            entrypoint=parse_command(given.get("Entrypoint")),
            volumes=tuple(sorted(parse_texts(given.get("Volumes")))),
            user=parse_text(given.get("User")),
        )
        diff_ids = parse_texts(value["rootfs"]["diff_ids"] or [])
        if not all(DIFF_ID.fullmatch(item) for item in diff_ids):
            raise m.InvalidDocumentError("a layer of it has no sha256 diff_id")
        created = parse_text(value.get("created"))
    except (m.InvalidDocumentError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise m.corrupt_manifest_error(name, error) from None
    notes = [f"ENV {line!a}: it has no value, and was left out, as enroot does" for line in lines if "=" not in line]
    if (system, platform.asked and not platform.fits(arch, variant)) != (m.SYSTEM, False):
        raise wrong_platform_error(name, platform, [f"{system}/{arch}"])
    if not platform.asked and not platform.fits(arch, variant):
        notes.append(f"the image is for {system}/{arch}, and this machine is {platform}")
    return SourceConfig(identity, found, parse_rfc3339(created), tuple(diff_ids), tuple(notes))


def check_layer_count(found: SourceConfig, layers: Sequence[object], name: str) -> None:
    """Raise InputError if the manifest and the configuration list different numbers of layers."""
    if len(layers) != len(found.diff_ids):
        why = f"it lists {len(layers)} layers, and its configuration {len(found.diff_ids)}"
        raise m.corrupt_manifest_error(name, m.InvalidDocumentError(why))


def make_source_image(
    image: m.ImageManifest,
    found: SourceConfig,
    opener: Callable[[m.BlobDescriptor], Callable[[], AbstractContextManager[IO[bytes]]]],
    *,
    reference: str,
    origin: str,
    manifest: str,
    name: str,
    places: int = 1,
) -> SourceImage:
    """Return the image of a manifest and its configuration. Raises InputError if they do not match.

    `opener` returns the function that opens a layer's blob; `name` is the base name of files made from the image.
    """
    check_layer_count(found, image.layers, reference)
    count = len(image.layers)
    layers = tuple(
        SourceLayer(
            diff_id, f"sha256:{part.digest}", part.size, layer_name(number, count), opener(part), places, reference
        )
        for number, (part, diff_id) in enumerate(zip(image.layers, found.diff_ids, strict=True), 1)
    )
    return SourceImage(
        reference=reference,
        origin=origin,
        manifest=manifest,
        config=found.config,
        created=found.created,
        layers=layers,
        identity=found.identity,
        name=name,
        notes=found.notes,
    )


def layer_name(number: int, count: int) -> str:
    return f"layer {number} of {count}"


def file_name(parts: Iterable[str]) -> str:
    """Return a plain file name from the parts of a reference."""
    name = "-".join(re.sub(r"[^A-Za-z0-9_.-]+", "-", part).strip("-.") for part in parts if part)
    return name[:100] or "image"


def check_digest(content: bytes, digest: str, name: str) -> bytes:
    """`content`, if it has that digest (``sha256:…``). Raises InputError."""
    found = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if found != digest:
        raise InputError(f"a document of {name} is damaged: {found} instead of {digest}", hint="have it written again")
    return content


def parse_text(value: object) -> str:
    if value is not None and not isinstance(value, str):
        raise m.InvalidDocumentError(f"{value!r:.80} where a text is required")
    return value or ""


def parse_texts(value: object) -> list[str]:
    """Return a list of texts, the keys of a table, or nothing. Raises InvalidDocumentError."""
    if isinstance(value, dict):
        value = list(value)
    if value is not None and not isinstance(value, list):
        raise m.InvalidDocumentError(f"{value!r:.80} where a list is required")
    return [parse_text(item) for item in value or []]


def parse_command(value: object) -> tuple[str, ...]:
    """Return a command: a list of words, or (in old images) a line for the shell."""
    return ("/bin/sh", "-c", value) if isinstance(value, str) and value else tuple(parse_texts(value or None))
