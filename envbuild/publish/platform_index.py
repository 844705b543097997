"""An index of several platforms under one tag: each build adds its own image, and clients choose by their platform.

Images for amd64 and arm64 are built on different machines, so that none has both. No registry here honours
conditions of a write: the index is read back, and written again where the own entry is missing. Format: OCI image spec
1.1, image-index.md.
"""

from __future__ import annotations

from typing import Any

from envbuild.core.errors import PublishError
from envbuild.core.json_text import canonical_json, check_writable
from envbuild.net.failures import NotFoundError
from envbuild.net.registry.client import ACCEPT
from envbuild.net.registry.media_types import INDEX
from envbuild.net.registry.push import Push
from envbuild.net.registry.upload import persist
from envbuild.oci import manifest as m
from envbuild.oci.document import MAX_DOCUMENT, InvalidDocumentError, Part, parse_json
from envbuild.oci.sources.platform import IN_ZSTD, PLAIN, is_special
from envbuild.publish.image_parts import ImageParts

TRIES = 5
ANOTHER = "name another tag for the index: --index TAG, or replace it: --move"


def add_to_index(content: bytes, parts: ImageParts, name: str, *, move: bool) -> bytes:
    """Return the index `content` (empty: none) with an image as the one of its platform; other entries remain.

    Raises PublishError if `name` is not an index or has another image of this platform, unless it may `move`.
    """
    value = parse_index(content, name, move=move)
    own = {**parts.subject, "platform": dict(parts.platform)}
    try:
        wanted = plain_platform(own)
    except InvalidDocumentError as error:
        raise PublishError(f"the image cannot be added to an index: {error}", hint="leave out --index") from None
    same = [entry for entry in value["manifests"] if plain_platform(entry) == wanted]
    listed = next((entry for entry in same if entry["digest"] == parts.digest), None)
    if listed:
        if not move:
            return content
        others = [entry for entry in same if entry is not listed and not is_beside(entry)]
        if not others:  # its bytes have a digest, to which signatures belong
            return content
        kept = [entry for entry in value["manifests"] if all(entry is not other for other in others)]
        return canonical_json({**value, "manifests": kept})
    if same and not move:
        raise PublishError(
            f"{name} has another image for {platform_text(own)}: {same[0]['digest']}, and this image is {parts.digest}",
            hint=ANOTHER,
        )
    others = [entry for entry in value["manifests"] if entry not in same]
    return canonical_json({**value, "manifests": sorted([*others, own], key=platform_text)})


def plain_platform(entry: dict[str, Any]) -> tuple[str, str]:
    """Return the platform of an entry, without a variant that all processors of its architecture have: of two such
    entries programs take one or the other (`envbuild.oci.sources.platform`). Raises InvalidDocumentError."""
    platform, variant = m.parse_platform(Part(entry))
    return platform, "" if variant in PLAIN.get(platform.rpartition("/")[2], ("",)) else variant


def is_beside(entry: dict[str, Any]) -> bool:
    """Return whether an entry is listed beside the image of its platform: in zstd, or for programs that know it. One
    whose fields have other types than those of the format is not."""
    try:
        packed = Part(entry).part("annotations").optional(IN_ZSTD).text() == "true"
        return packed or is_special(Part(entry))
    except InvalidDocumentError:
        return False


def parse_index(content: bytes, name: str, *, move: bool) -> dict[str, Any]:
    """Return an index that can be written again; an empty one if there is none, or if another document may `move`."""
    new = {"schemaVersion": 2, "mediaType": INDEX, "manifests": []}
    if not content:
        return new
    try:
        if len(content) > MAX_DOCUMENT:
            raise InvalidDocumentError("it is too large")
        value: dict[str, Any] = parse_json(content).expect(dict)
        if m.is_index(value):
            for item in m.list_index(value, name):
                m.parse_descriptor(item)
                m.parse_platform(item)
            check_writable(value)
            return value
        why = "it is an image"
    except ValueError as error:
        why = str(error)
    if move:
        return new
    raise PublishError(f"{name} exists and is not an index of images: {why}", hint=ANOTHER)


def platform_text(entry: dict[str, Any]) -> str:
    """Return the platform of an entry; empty for one without."""
    platform, variant = m.parse_platform(Part(entry))
    return f"{platform}/{variant}" if variant else platform


def read_tag(push: Push, tag: str) -> bytes:
    """Return the document that a tag names; empty if there is none. Raises UnreachableError."""

    def ask() -> bytes:
        try:
            return push.transport.read(push.at.manifest_url(tag), ACCEPT, push.transport.limits.manifest).content
        except NotFoundError:
            return b""

    return persist(ask, push.pause)


def push_index(push: Push, parts: ImageParts, name: str, tag: str, *, move: bool) -> None:
    """Add an image that was pushed to the index `tag`. Raises PublishError, UnreachableError."""
    for _ in range(TRIES):
        content = read_tag(push, tag)
        made = add_to_index(content, parts, name, move=move)
        if made == content:
            return
        push.manifest(made, str(parse_index(made, name, move=False).get("mediaType", INDEX)), tag)
    if add_to_index(found := read_tag(push, tag), parts, name, move=move) != found:
        raise PublishError(f"{name} loses entries: another publisher writes it, too", hint="run the command again")
