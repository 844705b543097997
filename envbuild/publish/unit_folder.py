"""Units in a cache that is a folder: an OCI layout with the folder ``units/`` beside its blobs.

units/<key> is the manifest of a unit, so that a unit is found by its name alone. The index lists the same for other
programs, each unit under its key.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from envbuild.build.cache.cache_folder import UNITS
from envbuild.build.cache.open_cache import check_folder
from envbuild.build.cache.unit_document import UNIT, StoredBlob, UnitDocument
from envbuild.core.json_text import canonical_json
from envbuild.core.store.store import write_atomic
from envbuild.net.registry.media_types import INDEX, OCI, REF_NAME
from envbuild.publish.folder import copy_blob, open_layout, open_subfolder, remove_unfinished, write_blob
from envbuild.publish.layout_index import read_index, ref_name
from envbuild.publish.pack_blobs import FileSlice


@dataclass(frozen=True, slots=True)
class SentUnit:
    """A unit as it is sent: its document, the files with its blobs, the document among them, and its signature."""

    document: UnitDocument
    files: tuple[FileSlice, ...]
    signature: StoredBlob | None = None

    @property
    def manifest(self) -> bytes:
        """The manifest."""
        return self.document.manifest(self.signature)

    @property
    def size(self) -> int:
        """The bytes of its blobs."""
        return sum(blob.size for blob in self.files)


def add_units(folder: Path, units: Sequence[SentUnit], report: Callable[[str], object]) -> None:
    """Add units to the layout `folder`, which is made if needed; blobs first, so that a key never names a part.

    `report` is called with a sentence when another process lets it wait. Raises PublishError, OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    check_folder(folder)
    with open_layout(folder, report) as (here, blobs):
        top = os.open(here, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            opened = open_subfolder(UNITS, top)
        finally:
            os.close(top)
        try:
            by_key = Path(f"/proc/self/fd/{opened}")
            remove_unfinished(by_key)
            entries = []
            for unit in units:
                for file in unit.files:
                    copy_blob(file, blobs)
                content, key = unit.manifest, unit.document.key
                digest = hashlib.sha256(content).hexdigest()
                write_blob(content, blobs / digest)
                write_blob(content, by_key / key)
                entries.append(
                    {
                        "mediaType": OCI.manifest,
                        "artifactType": UNIT,
                        "digest": f"sha256:{digest}",
                        "size": len(content),
                        "annotations": {REF_NAME: key},
                    }
                )
            keys = {unit.document.key for unit in units}
            others = [item for item in read_index(here, folder) if ref_name(item) not in keys]
            value = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [*others, *entries]}
            write_atomic(here / "index.json", lambda file: file.write(canonical_json(value)))
        finally:
            os.close(opened)
