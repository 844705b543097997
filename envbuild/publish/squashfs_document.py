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
from envbuild.core.json_text import canonical_json, json_value
from envbuild.core.text import printable
from envbuild.oci.document import InvalidDocumentError, Part, parse_json
from envbuild.publish.published_pack import (
    MAX_SHARED,
    BlobPart,
    PublishedPack,
    describe_pack,
    parse_digest,
    parse_pack,
    parse_size,
)
from envbuild.squashfs.write.assembly import Extent, check_extents

FORMATS = PLAIN_PACKS, SHARED_PACKS = 1, 2  # the second: parts of a pack are in the blob of its layer
MAX_PACKS = 4096
MAX_BLOBS = 512  # of all packs: `pull` has each open
MAX_REPEATS = 8  # a layer may be in an image more than once
MAX_NUMBERS = 3_000_000  # of the list of extents
PLAIN = re.compile(r"[A-Za-z0-9._-]{1,128}")
RELEASE = re.compile(r"[0-9A-Za-z.+_-]{1,40}")  # of envbuild, as a document states it


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
        packs = [describe_pack(pack) for pack in self.packs]
        value = {
            "format": SHARED_PACKS if any(pack.layer for pack in self.packs) else PLAIN_PACKS,
            "envbuild": __version__,
            "image": {"name": self.name, "architecture": self.architecture, "manifest": self.manifest},
            "file": {"sha256": self.sha256, "size": self.size},
            "tables": {"digest": f"sha256:{self.tables.digest}", "size": self.tables.length},
            "merge": self.merge,
            "packs": packs,
            "extents": list(chain.from_iterable(self.extents)),
        }
        return canonical_json(value)


def release_of(content: bytes) -> str:
    """Return the release of envbuild that wrote a document; empty if it does not state one."""
    found = json_value(content).get("envbuild")
    return found if isinstance(found, str) and RELEASE.fullmatch(found) else ""


def decode_document(content: bytes, blobs: Mapping[str, int], name: str) -> SquashfsDocument:
    """Return the document in `content`. `blobs`: digest (hex) → size, of the artifact that it is a part of.

    Raises InputError for a newer format, and for a document that contradicts itself or the artifact.
    """
    try:
        whole = parse_json(content)
        check_format(whole, name)
        found = _decode(whole)
        if any(pack.layer for pack in found.packs) != (whole.part("format").value == SHARED_PACKS):
            raise InvalidDocumentError("its format does not have such packs")
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
    """Raise InvalidDocumentError for a pack that is described in two ways, for a byte of a blob in two packs, and for a
    file far larger than its packs: a store takes packs that it has itself by their names, each once."""
    packs: dict[str, PublishedPack] = {}
    for pack in found.packs:
        if packs.setdefault(pack.key, pack) != pack:
            raise InvalidDocumentError("a pack is described in two ways")
    # `pull` writes the file while a blob arrives: a server that sends one byte after another would fill the disk
    end, last = 0, ""
    for part in sorted(chain(*(pack.blobs for pack in packs.values())), key=lambda part: (part.digest, part.start)):
        if part.digest == last and part.start < end:
            raise InvalidDocumentError("two packs have the same part of a blob")
        end, last = part.start + part.length, part.digest
    if found.size > MAX_REPEATS * (found.tables.length + sum(pack.size for pack in packs.values())):
        raise InvalidDocumentError("its file is far larger than its packs")


def check_format(whole: Part, name: str) -> None:
    """Raise InputError for a document that this envbuild does not read."""
    number = whole.part("format").expect(int)
    if number not in FORMATS:
        other = printable(whole.part("envbuild").text()[:40])
        raise InputError(
            f"the squashfs file of {name} is published in format {number}, by envbuild {other}; envbuild {__version__} "
            f"reads formats {PLAIN_PACKS} and {SHARED_PACKS}",
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
    made, shared = list[PublishedPack](), dict[str, int]()
    for part in packs:
        made.append(parse_pack(part))
        shared[made[-1].key] = len(made[-1].shared)  # a layer may come twice
        if sum(shared.values()) > MAX_SHARED:
            raise InvalidDocumentError(f"its packs share more than {MAX_SHARED} parts with layers")
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
        f"sha256:{parse_digest(manifest)}" if (manifest := image.part("manifest")).text() else "",
        sha256.value,
        parse_size(file.part("size")),
        BlobPart(parse_digest(tables.part("digest")), 0, parse_size(tables.part("size"))),
        tuple(made),
        list(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)),
        whole.part("merge").expect(dict),
    )
