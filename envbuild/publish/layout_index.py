"""The index of an OCI layout that other users write, too: only what can be written back as it was read is accepted.

Format: OCI image spec 1.1, image-index.md and descriptor.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from envbuild.core.errors import PublishError
from envbuild.core.regular_file import NotRegularError, TooLargeError, read_bounded
from envbuild.net.registry.media_types import REF_NAME
from envbuild.oci.document import MAX_DOCUMENT, Part, parse_json
from envbuild.oci.manifest import DIGEST


def read_index(here: Path, folder: Path) -> list[dict[str, Any]]:
    """Return the entries of the index in the open folder `here`; none if there is no index. `folder`: for messages.

    Raises PublishError for a malformed index; OSError.
    """
    try:
        document = parse_json(read_bounded(here / "index.json", MAX_DOCUMENT, follow=False))
        listed = [_entry(item) for item in document.part("manifests").parts(needed=True)]
        # a lone surrogate, NaN and infinity have no form in JSON and UTF-8
        json.dumps(document.value, allow_nan=False, ensure_ascii=False).encode()
    except FileNotFoundError:
        return []
    except (NotRegularError, TooLargeError, ValueError, RecursionError):
        raise PublishError(
            "the index of the layout is malformed", hint="publish into another folder", where=str(folder / "index.json")
        ) from None
    return listed


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


def names(item: dict[str, Any], tag: str, arch: str) -> bool:
    """Return whether an entry is the image `tag` for this architecture; one without a platform is for each."""
    platform = item.get("platform") or {}
    return (item.get("annotations") or {}).get(REF_NAME) == tag and platform.get("architecture", arch) == arch
