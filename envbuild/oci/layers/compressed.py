"""The blobs that layers became when they were compressed: layers/<hex>/compressed.json of this user's store.

A target that has the blob needs no other one: whichever release of a library made it, its content is the layer.
"""

from __future__ import annotations

import contextlib
import re

from envbuild.core.store.json_files import read_sealed, write_sealed
from envbuild.core.store.store import LayerRecord, Store

NAME = "compressed.json"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def read_compressed(store: Store, layer: LayerRecord, compression: str) -> tuple[str, int] | None:
    """Return (digest as ``sha256:…``, bytes) of the blob that a layer became; None if there is no record."""
    value = read_sealed(store.layer_path(layer.diff_id) / NAME)
    try:
        digest, size = value[compression]
    except (LookupError, TypeError, ValueError):
        return None
    whole = isinstance(digest, str) and DIGEST.fullmatch(digest) and type(size) is int and size >= 0
    return (digest, size) if whole else None


def is_compressed_layer(store: Store, diff_id: str, digest: str) -> bool:
    """Return whether this user compressed a layer (``sha256:…``) to the blob `digest`."""
    value = read_sealed(store.layer_path(diff_id) / NAME)
    rows = value.values() if isinstance(value, dict) else ()
    return any(isinstance(row, list) and row[:1] == [digest] for row in rows)


def record_compressed(store: Store, layer: LayerRecord, compression: str, digest: str, size: int) -> None:
    """Record the blob of a layer that this user has unpacked; in a store that cannot be written nothing is recorded."""
    path = store.layer_path(layer.diff_id) / NAME
    value = read_sealed(path)
    known = value if isinstance(value, dict) else {}
    if known.get(compression) != [digest, size]:
        with contextlib.suppress(OSError):
            write_sealed(path, {**known, compression: [digest, size]})
