"""A unit in a cache: a manifest with the unit's key as its tag, and a document that binds key and digests.

The manifest is an artifact (OCI image spec 1.1, manifest.md) whose configuration is the document, and whose layers are
the blobs that the document names: the pack of the layer, in parts if it is large, or wheels. A layer of the type
`SIGNATURE` is a signature of the document: an envelope of DSSE with a statement about its digest
(`envbuild.build.cache.unit_signature`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from envbuild.core.json_text import canonical_json, record_value
from envbuild.core.store.build_records import DIFF_ID, HEX, LONGEST, WHEEL_NAME
from envbuild.core.store.tree_folder import TreeFolder, parse_tree_folder
from envbuild.core.text import printable
from envbuild.net.registry.media_types import OCI
from envbuild.oci.document import InvalidDocumentError, Part, parse_json
from envbuild.oci.manifest import MAX_SIZE, BlobDescriptor, parse_descriptor

FORMAT = 2  # raise it with that of packs (`PACK_VERSION`): an earlier release leaves such a cache alone
UNIT = "application/vnd.envbuild.unit.v1"  # an artifact
FAMILY = "application/vnd.envbuild.unit."  # and v2 and so on, of a newer envbuild
DOCUMENT = "application/vnd.envbuild.unit.document.v1+json"
SIGNATURE = "application/vnd.envbuild.unit.signature.v1+json"
WHEEL = "application/vnd.envbuild.wheel.v1"
PACK = "application/vnd.envbuild.pack.v1"
MAX_PARTS = 1000  # of a pack; each has 1 GiB


class NewerFormatError(Exception):
    """A unit that a newer envbuild wrote, in a format that this one does not read."""


class RefusedUnitError(Exception):
    """A unit of a cache that is not what its key or its digests name."""


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob by its digest (hex) and its size in bytes; `name`: of a wheel."""

    digest: str
    size: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class UnitDocument:
    """The product of a unit: a layer (`diff_id`, with its pack: digest, size and the `parts` that it is cut into, and
    the `folders` of its tree that are not members), or wheels."""

    key: str
    unit: str
    seconds: float = 0.0
    box: Mapping[str, bool] = field(default_factory=dict)
    diff_id: str = ""
    pack: StoredBlob | None = None
    parts: tuple[StoredBlob, ...] = ()
    folders: tuple[TreeFolder, ...] = ()
    wheels: tuple[StoredBlob, ...] = ()

    @property
    def blobs(self) -> tuple[StoredBlob, ...]:
        """The blobs of the product."""
        return (*self.parts, *self.wheels)

    def encode(self) -> bytes:
        """Return the document."""
        value: dict[str, Any] = {
            "format": FORMAT, "key": self.key, "unit": self.unit, "seconds": self.seconds, "box": dict(self.box),
            "layer": None, "wheels": [[wheel.name, wheel.digest, wheel.size] for wheel in self.wheels],
        }  # fmt: skip
        if self.pack:
            parts = [[part.digest, part.size] for part in self.parts]
            pack = {"digest": self.pack.digest, "size": self.pack.size, "parts": parts}
            value["layer"] = {"diff_id": self.diff_id, "pack": pack, "folders": self.folders}
        return canonical_json(value)

    def manifest(self, signature: StoredBlob | None = None) -> bytes:
        """Return the manifest, with the signature of the document."""
        kinds = [(PACK, part) for part in self.parts] + [(WHEEL, wheel) for wheel in self.wheels]
        kinds += [(SIGNATURE, signature)] if signature else []
        layers = {blob.digest: _descriptor(kind, blob.digest, blob.size) for kind, blob in kinds}
        content = self.encode()
        value = {
            "schemaVersion": 2,
            "mediaType": OCI.manifest,
            "artifactType": UNIT,
            "config": _descriptor(DOCUMENT, hashlib.sha256(content).hexdigest(), len(content)),
            "layers": list(layers.values()),
        }
        return canonical_json(value)


def _descriptor(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}


def parse_unit_manifest(content: bytes) -> tuple[BlobDescriptor, list[BlobDescriptor]]:
    """Return the descriptor of the document of a unit, and those of its signatures.

    Raises InvalidDocumentError, NewerFormatError."""
    whole = parse_json(content)
    kind = whole.part("artifactType").text()
    if kind != UNIT and kind.startswith(FAMILY):
        raise NewerFormatError
    if kind != UNIT:
        raise whole.part("artifactType").error(f"not {UNIT}")
    layers = [parse_descriptor(item) for item in whole.part("layers").parts()]
    return parse_descriptor(whole.part("config")), [layer for layer in layers if layer.kind == SIGNATURE]


def parse_unit_document(content: bytes) -> UnitDocument:
    """Return a document. Raises InvalidDocumentError, NewerFormatError."""
    try:
        value = record_value(content)
        if Part(value).part("format").expect(int) > FORMAT:
            raise NewerFormatError
        key, unit = (Part(value).part(name).expect(str) for name in ("key", "unit"))
        box = {str(name): state is True for name, state in value["box"].items()}
        wheels = tuple(StoredBlob(_hex(digest), _size(size), name) for name, digest, size in value["wheels"])
        if not all(WHEEL_NAME.fullmatch(wheel.name) for wheel in wheels):
            raise ValueError("a wheel has no name of one")
        # float("inf") of a text is not a number of JSON
        if type(value["seconds"]) not in (int, float) or not 0 <= value["seconds"] < LONGEST:
            raise ValueError("not a number of seconds")
        found = UnitDocument(key, unit, float(value["seconds"]), box, wheels=wheels)
        return _with_layer(found, value["layer"]) if value["layer"] else found
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InvalidDocumentError(f"it does not describe a unit ({printable(str(error))[:200]})") from None


def _with_layer(found: UnitDocument, layer: Mapping[str, Any]) -> UnitDocument:
    pack = StoredBlob(_hex(layer["pack"]["digest"]), _size(layer["pack"]["size"]))
    parts = tuple(StoredBlob(_hex(digest), _size(size)) for digest, size in layer["pack"]["parts"])
    if not 0 < len(parts) <= MAX_PARTS or sum(part.size for part in parts) != pack.size:
        raise ValueError("the parts are not the pack")
    if not DIFF_ID.fullmatch(layer["diff_id"]) or found.wheels:
        raise ValueError("not one product")
    folders = tuple(map(parse_tree_folder, layer["folders"]))
    return UnitDocument(found.key, found.unit, found.seconds, found.box, layer["diff_id"], pack, parts, folders)


def _hex(value: Any) -> str:
    if not isinstance(value, str) or not HEX.fullmatch(value):
        raise ValueError("a digest")
    return value


def _size(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_SIZE:
        raise ValueError("a size")
    return value
