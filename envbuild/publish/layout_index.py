"""The index of an OCI layout that other users write, too: only what can be written back as it was read is accepted.

Format: OCI image spec 1.1, image-index.md and descriptor.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envbuild.core.errors import PublishError
from envbuild.core.json_text import canonical_json, check_writable
from envbuild.core.regular_file import NotRegularError, TooLargeError, read_bounded
from envbuild.net.registry.media_types import INDEX, REF_NAME
from envbuild.oci.document import MAX_DOCUMENT, Part, parse_json
from envbuild.oci.manifest import DIGEST
from envbuild.publish.image_parts import ImageParts
from envbuild.publish.platform_index import add_to_index


def read_index(here: Path, folder: Path) -> list[dict[str, Any]]:
    """Return the entries of the index in the open folder `here`; none if there is no index. `folder`: for messages.

    Raises PublishError for a malformed index; OSError.
    """
    try:
        return parse_index(read_bounded(here / "index.json", MAX_DOCUMENT, follow=False))
    except FileNotFoundError:
        return []
    except (NotRegularError, TooLargeError, ValueError, RecursionError):
        raise PublishError(
            "the index of the layout is malformed", hint="publish into another folder", where=str(folder / "index.json")
        ) from None


def parse_index(content: bytes) -> list[dict[str, Any]]:
    """Return the entries of an index that can be written again. Raises ValueError, RecursionError."""
    if len(content) > MAX_DOCUMENT:
        raise ValueError(f"it has more than {MAX_DOCUMENT} bytes")
    document = parse_json(content)
    listed = [_entry(item) for item in document.part("manifests").parts(needed=True)]
    check_writable(document.value)
    return listed


def new_index(entries: Sequence[Mapping[str, Any]], folder: Path) -> bytes:
    """Return the bytes of an index, which its readers accept. Raises PublishError for one that is too large."""
    content = canonical_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": list(entries)})
    try:
        parse_index(content)
    except ValueError as error:
        raise PublishError(
            f"an index of {len(entries)} entries would be unreadable: {error}",
            hint="publish into another folder",
            where=str(folder),
        ) from None
    return content


def _entry(item: Part) -> dict[str, Any]:
    """Return an entry; what `names` reads of it has the right type. Raises InvalidDocumentError."""
    if not DIGEST.fullmatch(item.part("digest").text()):
        raise item.part("digest").error("not sha256: and 64 hexadecimal digits")
    for key, part in item.part("annotations").pairs():
        if key == REF_NAME:
            part.expect(str)
    item.part("platform").optional("architecture").text()
    value: dict[str, Any] = item.value
    return value


def ref_name(item: dict[str, Any]) -> str | None:
    """Return the name of an entry; None if it has none."""
    name: str | None = (item.get("annotations") or {}).get(REF_NAME)
    return name


def names(item: dict[str, Any], tag: str, arch: str) -> bool:
    """Return whether an entry is the image `tag` for this architecture; one without a platform is for each."""
    platform = item.get("platform") or {}
    return ref_name(item) == tag and bool(platform.get("architecture", arch) == arch)


def add_to_tag(
    index: list[dict[str, Any]], blobs: Path, parts: ImageParts, folder: Path, tag: str, *, move: bool
) -> bytes:
    """Return the index that the layout calls `tag`, with an image. Raises PublishError, OSError."""
    found, content = [item["digest"] for item in index if ref_name(item) == tag], b""
    if found:
        content = read_bounded(blobs / found[0].removeprefix("sha256:"), MAX_DOCUMENT, follow=False)
    return add_to_index(content, parts, f"oci:{folder}:{tag}", move=move)


def describe_index(content: bytes, tag: str) -> dict[str, Any]:
    """Return the entry of an index of several platforms in the index of the layout."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return {"mediaType": INDEX, "digest": digest, "size": len(content), "annotations": {REF_NAME: tag}}
