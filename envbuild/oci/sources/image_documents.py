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
from envbuild.core.text import printable
from envbuild.oci import manifest as m
from envbuild.oci.config import ImageConfig, parse_rfc3339
from envbuild.oci.document import InvalidDocumentError, Part
from envbuild.oci.sources.base import SourceImage, SourceLayer
from envbuild.oci.sources.platform import Platform, wrong_platform_error

DIFF_ID = re.compile(r"sha256:[0-9a-f]{64}")
CONFIGURATION = "configuration"


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
    identity = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return parse_configuration(m.parse_document(content, name, CONFIGURATION), identity, name, platform)


def parse_configuration(value: Mapping[str, Any], identity: str, name: str, platform: Platform) -> SourceConfig:
    """Return the configuration from a document that is parsed already. Raises as `read_configuration`."""
    whole = Part(value)
    given = whole.part("config")
    try:
        arch, system = whole.part("architecture").expect(str), whole.part("os").expect(str)
        variant = whole.part("variant").text()
        lines = given.optional("Env").texts()
        env = dict(line.split("=", 1) for line in lines if "=" in line)
        found = ImageConfig(
            architecture=arch,
            env=env,
            cmd=parse_command(given.optional("Cmd")),
            workdir=given.optional("WorkingDir").text() or "/",
            labels={key: item.text() for key, item in given.optional("Labels").pairs()},
            entrypoint=parse_entrypoint(given.optional("Entrypoint")),
            volumes=tuple(sorted(given.optional("Volumes").texts())),
            user=given.optional("User").text(),
        )
        diff_ids = [parse_diff_id(item) for item in whole.part("rootfs").part("diff_ids").parts(needed=True)]
        created = whole.part("created").text()
    except InvalidDocumentError as error:
        raise m.corrupt_document_error(name, error, CONFIGURATION) from None
    m.check_layers(len(diff_ids), (item for item in diff_ids if item[7:] not in m.EMPTY_LAYERS), name)
    notes = [f"ENV {line!a}: it has no value, and was left out, as enroot does" for line in lines if "=" not in line]
    if (system, platform.asked and not platform.fits(arch, variant)) != (m.SYSTEM, False):
        raise wrong_platform_error(name, platform, [printable(f"{system}/{arch}")])
    if not platform.asked and not platform.fits(arch, variant):
        notes.append(f"the image is for {printable(f'{system}/{arch}')}, and this machine is {platform}")
    return SourceConfig(identity, found, parse_rfc3339(created), tuple(diff_ids), tuple(notes))


def check_layer_count(found: SourceConfig, layers: Sequence[object], name: str) -> None:
    """Raise InputError if the manifest and the configuration list different numbers of layers."""
    if len(layers) != len(found.diff_ids):
        why = f"it lists {len(layers)} layers, and its configuration {len(found.diff_ids)}"
        raise m.corrupt_document_error(name, InvalidDocumentError(why))


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
    documents: tuple[bytes, ...] = (),
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
        documents=documents,
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


def parse_diff_id(item: Part) -> str:
    """Return the digest of an unpacked layer. Raises InvalidDocumentError."""
    if not DIFF_ID.fullmatch(item.expect(str)):
        raise item.error("not sha256: and 64 digits in lower case")
    return str(item.value)


def parse_entrypoint(item: Part) -> tuple[str, ...]:
    """Return an entrypoint. One empty word is none, as for Docker: a Dockerfile drops that of its base so."""
    found = parse_command(item)
    return () if found == ("",) else found


def parse_command(item: Part) -> tuple[str, ...]:
    """Return a command: a list of words, or (in old images) a line for the shell. Raises InvalidDocumentError."""
    if isinstance(item.value, str):
        return ("/bin/sh", "-c", item.value) if item.value else ()
    return tuple(item.texts())
