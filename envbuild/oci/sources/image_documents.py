"""The configuration of an image as anybody may have written it, and the image that it makes with its layers.

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
from envbuild.oci.config import ImageConfig, seconds
from envbuild.oci.sources.base import SourceImage, SourceLayer
from envbuild.oci.sources.platform import Platform, wrong_platform

DIFF_ID = re.compile(r"sha256:[0-9a-f]{64}")
LARGEST = 16 << 20  # bytes of a manifest or configuration; real ones have some ten thousand


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a configuration says. `identity`: its digest; `diff_ids`: of the layers, bottom first."""

    identity: str
    config: ImageConfig
    created: int
    diff_ids: tuple[str, ...]
    notes: tuple[str, ...]


def read_configuration(content: bytes, name: str, platform: Platform) -> Configuration:
    """Raises InputError for a damaged one, ConflictError for an image of another platform than was asked for."""
    if len(content) > LARGEST:
        raise m.damaged(name, m.Damaged(f"its configuration has {len(content)} bytes"))
    identity = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return configuration(m.document(content, name), identity, name, platform)


def configuration(value: Mapping[str, Any], identity: str, name: str, platform: Platform) -> Configuration:
    """The same from a configuration that is read already."""
    try:
        arch, system = str(value["architecture"]), str(value["os"])
        variant = str(value.get("variant") or "")
        given = value.get("config") or {}
        lines = texts(given.get("Env"))
        env = dict(line.split("=", 1) for line in lines if "=" in line)
        found = ImageConfig(
            architecture=arch,
            env=env,
            cmd=words(given.get("Cmd")),
            workdir=text(given.get("WorkingDir")) or "/",
            labels={str(key): text(item) for key, item in (given.get("Labels") or {}).items()},
            entrypoint=words(given.get("Entrypoint")),
            volumes=tuple(sorted(texts(given.get("Volumes")))),
            user=text(given.get("User")),
        )
        diff_ids = texts(value["rootfs"]["diff_ids"] or [])
        if not all(DIFF_ID.fullmatch(item) for item in diff_ids):
            raise m.Damaged("a layer of it has no sha256 diff_id")
        created = text(value.get("created"))
    except (m.Damaged, KeyError, TypeError, AttributeError, ValueError) as error:
        raise m.damaged(name, error) from None
    notes = [f"ENV {line!a}: it has no value, and was left out, as enroot does" for line in lines if "=" not in line]
    if (system, platform.asked and not platform.fits(arch, variant)) != (m.SYSTEM, False):
        raise wrong_platform(name, platform, [f"{system}/{arch}"])
    if not platform.asked and not platform.fits(arch, variant):
        notes.append(f"the image is for {system}/{arch}, and this machine is {platform}")
    return Configuration(identity, found, seconds(created), tuple(diff_ids), tuple(notes))


def fitting(found: Configuration, layers: Sequence[object], name: str) -> None:
    """Raises InputError when the manifest and the configuration count the layers otherwise."""
    if len(layers) != len(found.diff_ids):
        why = f"it lists {len(layers)} layers, and its configuration {len(found.diff_ids)}"
        raise m.damaged(name, m.Damaged(why))


def of_manifest(
    image: m.Image,
    found: Configuration,
    opener: Callable[[m.Part], Callable[[], AbstractContextManager[IO[bytes]]]],
    *,
    reference: str,
    origin: str,
    manifest: str,
    name: str,
    places: int = 1,
) -> SourceImage:
    """The image of a manifest and its configuration; `opener` gives what opens a layer's blob, `name` is what files
    made from it are called. Raises InputError when the two do not fit."""
    fitting(found, image.layers, reference)
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
    """A plain file name of a reference's words."""
    name = "-".join(re.sub(r"[^A-Za-z0-9_.-]+", "-", part).strip("-.") for part in parts if part)
    return name[:100] or "image"


def checked(content: bytes, digest: str, name: str) -> bytes:
    """`content`, if it has that digest (``sha256:…``). Raises InputError."""
    found = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if found != digest:
        raise InputError(f"a document of {name} is damaged: {found} instead of {digest}", hint="have it made anew")
    return content


def text(value: object) -> str:
    if value is not None and not isinstance(value, str):
        raise m.Damaged(f"{value!r:.80} stands where a text should")
    return value or ""


def texts(value: object) -> list[str]:
    """A list of texts, the keys of a table, or nothing."""
    if isinstance(value, dict):
        value = list(value)
    if value is not None and not isinstance(value, list):
        raise m.Damaged(f"{value!r:.80} stands where a list should")
    return [text(item) for item in value or []]


def words(value: object) -> tuple[str, ...]:
    """A command: a list of words, or (in old images) a line for the shell."""
    return ("/bin/sh", "-c", value) if isinstance(value, str) and value else tuple(texts(value or None))
