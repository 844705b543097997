"""The document of a published squashfs file: its packs, and the extents of packs and tables that make it up.

It comes from a registry or a folder that strangers may write: every value is checked, and a newer format is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from envbuild import __version__
from envbuild.core.errors import InputError
from envbuild.core.json_text import canonical_json
from envbuild.core.text import printable
from envbuild.oci.document import InvalidDocumentError, Part, parse_json
from envbuild.oci.manifest import DIGEST, MAX_SIZE
from envbuild.squashfs.write.assembly import Extent, check_extents

FORMAT = 1
MAX_PACKS = 4096
MAX_PARTS, MAX_BLOBS = 64, 512  # of a pack (one for each GiB of a large one), and in all: `pull` has each open
MAX_REPEATS = 8  # a layer may be in an image more than once
MAX_NUMBERS = 3_000_000  # of the list of extents
KEY = re.compile(r"[0-9a-f]{64}\.[A-Za-z0-9._+-]{1,150}")  # the name of a pack in a store
PLAIN = re.compile(r"[A-Za-z0-9._-]{1,128}")


@dataclass(frozen=True, slots=True)
class BlobPart:
    """`length` bytes from `start` on of the blob `digest` (hex)."""

    digest: str
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class PublishedPack:
    """A pack: its name in a store (`key`), digest (hex) and size, and the blobs that have its bytes, in order."""

    key: str
    digest: str
    size: int
    blobs: tuple[BlobPart, ...]


@dataclass(frozen=True, slots=True)
class SquashfsDocument:
    """A squashfs file of `size` bytes with `sha256`: its packs, bottom first, and its `extents`.

    `manifest` (``sha256:…``): of the image that it belongs to, empty for one that was published without its layers.
    `tables`: the blob of what no pack has. `merge`: how the packs were merged, for users.
    """

    name: str
    architecture: str
    manifest: str
    sha256: str
    size: int
    tables: BlobPart
    packs: tuple[PublishedPack, ...]
    extents: Sequence[Extent]
    merge: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the document as bytes: the same for the same file."""
        packs = [
            {
                "key": pack.key,
                "digest": f"sha256:{pack.digest}",
                "size": pack.size,
                "blobs": [[f"sha256:{part.digest}", part.start, part.length] for part in pack.blobs],
            }
            for pack in self.packs
        ]
        value = {
            "format": FORMAT,
            "envbuild": __version__,
            "image": {"name": self.name, "architecture": self.architecture, "manifest": self.manifest},
            "file": {"sha256": self.sha256, "size": self.size},
            "tables": {"digest": f"sha256:{self.tables.digest}", "size": self.tables.length},
            "merge": self.merge,
            "packs": packs,
            "extents": list(chain.from_iterable(self.extents)),
        }
        return canonical_json(value)


def decode_document(content: bytes, blobs: Mapping[str, int], name: str) -> SquashfsDocument:
    """Return the document in `content`. `blobs`: digest (hex) → size, of the artifact that it is a part of.

    Raises InputError for a newer format, and for a document that contradicts itself or the artifact.
    """
    try:
        whole = parse_json(content)
        check_format(whole, name)
        found = _decode(whole)
        parts = (found.tables, *(part for pack in found.packs for part in pack.blobs))
        for part in parts:
            if part.start + part.length > blobs.get(part.digest, -1):
                raise InvalidDocumentError("a pack is outside of the blobs of the artifact")
        if blobs[found.tables.digest] != found.tables.length:
            raise InvalidDocumentError("its tables have another size")
        used = {part.digest for part in parts}  # the artifact may claim any size for blobs that are not fetched
        if len(used) > MAX_BLOBS:
            raise InvalidDocumentError(f"its packs are in more than {MAX_BLOBS} blobs")
        if found.size > MAX_REPEATS * sum(blobs[digest] for digest in used):  # many packs may name one blob
            raise InvalidDocumentError("its file is far larger than the blobs of the artifact")
        check_packs(found)
        check_extents(found.extents, [pack.size for pack in found.packs], found.tables.length, found.size)
    except (InvalidDocumentError, ValueError) as error:
        raise InputError(
            f"the squashfs file of {name} is published with a damaged document: {error}",
            hint="publish it again: envbuild publish NAME --to PLACE --move",
        ) from None
    return found


def check_packs(found: SquashfsDocument) -> None:
    """Raise InvalidDocumentError for a pack that is described twice in different ways, and for a file that is far
    larger than its packs: a store takes packs that it has itself by their names, each once."""
    packs: dict[str, PublishedPack] = {}
    for pack in found.packs:
        if packs.setdefault(pack.key, pack) != pack:
            raise InvalidDocumentError("a pack is described in two ways")
    if found.size > MAX_REPEATS * (found.tables.length + sum(pack.size for pack in packs.values())):
        raise InvalidDocumentError("its file is far larger than its packs")


def check_format(whole: Part, name: str) -> None:
    """Raise InputError for a document that this envbuild does not read."""
    number = whole.part("format").expect(int)
    if number != FORMAT:
        other = printable(whole.part("envbuild").text()[:40])
        raise InputError(
            f"the squashfs file of {name} is published in format {number}, by envbuild {other}; envbuild {__version__} "
            f"reads format {FORMAT}",
            hint="install a newer envbuild, or convert its layers: envbuild export docker://NAME --to squashfs",
        )


def _decode(whole: Part) -> SquashfsDocument:
    image, file, tables = (whole.part(key) for key in ("image", "file", "tables"))
    packs = whole.part("packs").parts(needed=True)
    if len(packs) > MAX_PACKS:
        raise InvalidDocumentError(f"it has more than {MAX_PACKS} packs")
    numbers: list[Any] = whole.part("extents").expect(list)
    if len(numbers) % 3 or len(numbers) > MAX_NUMBERS or any(type(number) is not int for number in numbers):
        raise InvalidDocumentError("extents is not a list of whole numbers, three for each extent")
    sha256 = file.part("sha256")
    if not re.fullmatch("[0-9a-f]{64}", sha256.expect(str)):
        raise sha256.error("not 64 digits in lower case")
    names = [image.part(key) for key in ("name", "architecture")]
    for part in names:
        if not PLAIN.fullmatch(part.expect(str)):
            raise part.error("not a plain name")
    return SquashfsDocument(
        names[0].value,
        names[1].value,
        f"sha256:{_digest(manifest)}" if (manifest := image.part("manifest")).text() else "",
        sha256.value,
        _size(file.part("size")),
        BlobPart(_digest(tables.part("digest")), 0, _size(tables.part("size"))),
        tuple(_pack(part) for part in packs),
        list(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)),
        whole.part("merge").expect(dict),
    )


def _pack(item: Part) -> PublishedPack:
    key, size = item.part("key"), _size(item.part("size"))
    if not KEY.fullmatch(key.expect(str)):
        raise key.error("not the name of a pack")
    blobs = []
    rows = item.part("blobs").parts(needed=True)
    if len(rows) > MAX_PARTS:
        raise InvalidDocumentError(f"a pack has more than {MAX_PARTS} parts")
    for row in rows:
        digest, start, length = _three(row)
        blobs.append(BlobPart(_digest(digest), _size(start), _size(length)))
    if sum(part.length for part in blobs) != size:
        raise item.error("a pack whose blobs have another size")
    ends: dict[str, int] = {}
    for part in blobs:
        if part.start < ends.get(part.digest, 0):
            raise item.error("a pack that has each part of a blob once")
        ends[part.digest] = part.start + part.length
    return PublishedPack(key.value, _digest(item.part("digest")), size, tuple(blobs))


def _three(row: Part) -> list[Part]:
    found = row.parts(needed=True)
    if len(found) != 3:
        raise row.error("not a digest, a position and a length")
    return found


def _digest(item: Part) -> str:
    found = DIGEST.fullmatch(item.expect(str))
    if not found:
        raise item.error("not sha256: and 64 digits in lower case")
    return found[1]


def _size(item: Part) -> int:
    number: int = item.expect(int)
    if not 0 <= number <= MAX_SIZE:
        raise item.error("not a number of bytes")
    return number
