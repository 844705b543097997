"""A pack as the document of a published squashfs file has it: its name, its digest, and the blobs that have its bytes.

Most packs are blobs of their own, parts of one, or several. Of a pack whose layer is published with its blocks
(`envbuild.squashfs.pack.layer_frames`), the blob of the layer has most bytes, and other blobs the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from envbuild.oci.document import InvalidDocumentError, Part
from envbuild.oci.manifest import DIGEST, MAX_SIZE
from envbuild.squashfs.pack.frame_writer import Shared

MAX_PARTS = 64  # of a pack in blobs of its own: one for each GiB of a large one
MAX_SHARED = 250_000  # parts that packs share with layers: 4,000 for each GB of wheels with CUDA code
KEY = re.compile(r"[0-9a-f]{64}\.[A-Za-z0-9._+-]{1,150}")  # the name of a pack in a store


@dataclass(frozen=True, slots=True)
class BlobPart:
    """`length` bytes from `start` on of the blob `digest` (hex)."""

    digest: str
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class PublishedPack:
    """A pack: its name in a store (`key`), digest (hex) and size, and the blobs that have its bytes, in order.

    layer: the blob of its layer (hex), which has the parts `shared` of it, and `rest` the others; empty for a pack
    whose bytes are in blobs of their own."""

    key: str
    digest: str
    size: int
    blobs: tuple[BlobPart, ...]
    layer: str = ""
    shared: tuple[Shared, ...] = ()
    rest: tuple[BlobPart, ...] = ()

    @classmethod
    def of_layer(
        cls, key: str, digest: str, size: int, rest: Sequence[BlobPart], layer: str, shared: Sequence[Shared]
    ) -> Self:
        """Return a pack that shares parts with the blob of its layer. Raises ValueError if they do not fit."""
        blobs = tuple(join_parts(size, rest, layer, shared))
        return cls(key, digest, size, blobs, layer, tuple(shared), tuple(rest))


def join_parts(size: int, rest: Sequence[BlobPart], layer: str, shared: Sequence[Shared]) -> Iterator[BlobPart]:
    """Yield the parts of a pack in order: those that are `shared` with the blob `layer` (hex), and the `rest`. Raises
    ValueError."""
    left, at = list(rest)[::-1], 0
    for pack, blob, length in (*shared, Shared(size, 0, 0)):
        wanted = pack - at
        while wanted:
            if wanted < 0 or not left:
                raise ValueError("a pack whose blobs have another size")
            part = left.pop()
            some = min(wanted, part.length)
            yield BlobPart(part.digest, part.start, some)
            if some < part.length:
                left.append(BlobPart(part.digest, part.start + some, part.length - some))
            wanted -= some
        if length:
            yield BlobPart(layer, blob, length)
        at = pack + length
    if left:
        raise ValueError("a pack whose blobs have another size")


def describe_pack(pack: PublishedPack) -> dict[str, Any]:
    """Return a pack as the document has it. `shared` has three numbers for each part: bytes of the rest before it,
    bytes of the layer's blob that are between it and the part before, and its length."""
    parts = pack.rest if pack.layer else pack.blobs
    found: dict[str, Any] = {
        "key": pack.key,
        "digest": f"sha256:{pack.digest}",
        "size": pack.size,
        "blobs": [[f"sha256:{part.digest}", part.start, part.length] for part in parts],
    }
    if pack.layer:
        ends, numbers = (0, 0), list[int]()
        for at, blob, length in pack.shared:
            numbers += [at - ends[0], blob - ends[1], length]
            ends = at + length, blob + length
        found |= {"layer": f"sha256:{pack.layer}", "shared": numbers}
    return found


def parse_pack(item: Part) -> PublishedPack:
    key, size = item.part("key"), parse_size(item.part("size"))
    if not KEY.fullmatch(key.expect(str)):
        raise key.error("not the name of a pack")
    blobs = []
    rows = item.part("blobs").parts(needed=True)
    if len(rows) > MAX_PARTS:
        raise InvalidDocumentError(f"a pack has more than {MAX_PARTS} parts")
    for row in rows:
        digest, start, length = _three(row)
        blobs.append(BlobPart(parse_digest(digest), parse_size(start), parse_size(length)))
    name = parse_digest(item.part("digest"))
    if item.part("layer").value is not None:
        layer, shared = parse_digest(item.part("layer")), _shared(item.part("shared"))
        try:
            pack = PublishedPack.of_layer(key.value, name, size, blobs, layer, shared)
        except ValueError as error:
            raise item.error(str(error)) from None
    else:
        pack = PublishedPack(key.value, name, size, tuple(blobs))
    if sum(part.length for part in pack.blobs) != size:
        raise item.error("a pack whose blobs have another size")
    ends: dict[str, int] = {}
    for part in pack.blobs:
        if part.start < ends.get(part.digest, 0):
            raise item.error("a pack that has each part of a blob once")
        ends[part.digest] = part.start + part.length
    return pack


def _shared(item: Part) -> list[Shared]:
    """Return what a pack shares with the blob of its layer."""
    numbers: list[Any] = item.expect(list)
    if len(numbers) % 3 or len(numbers) > 3 * MAX_SHARED or any(type(number) is not int for number in numbers):
        raise item.error("not a list of whole numbers, three for each part")
    found, at, blob = list[Shared](), 0, 0
    for rest, gap, length in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
        if not (0 <= rest <= MAX_SIZE and 0 <= gap <= MAX_SIZE and 0 < length <= MAX_SIZE):
            raise item.error("not parts of a pack in their order")
        at, blob = at + rest, blob + gap
        found.append(Shared(at, blob, length))
        at, blob = at + length, blob + length
    return found


def _three(row: Part) -> list[Part]:
    found = row.parts(needed=True)
    if len(found) != 3:
        raise row.error("not a digest, a position and a length")
    return found


def parse_digest(item: Part) -> str:
    found = DIGEST.fullmatch(item.expect(str))
    if not found:
        raise item.error("not sha256: and 64 digits in lower case")
    return found[1]


def parse_size(item: Part) -> int:
    number: int = item.expect(int)
    if not 0 <= number <= MAX_SIZE:
        raise item.error("not a number of bytes")
    return number
