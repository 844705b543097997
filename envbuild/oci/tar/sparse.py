"""Maps of sparse files in tars: which parts of a file are stored, the rest being zeros.

Formats: GNU tar manual, "Storing Sparse Files": the old GNU format (type ``S``), and in extended headers the versions
0.0, 0.1 and 1.0. Maps are refused when they are longer than `MAP_MOST`, so that a small archive cannot occupy much
memory (Go's archive/tar has the same limit).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from envbuild.oci.tar.fields import MAX_SIZE, LayerError, Record, parse_decimal, parse_number

BLOCK = 512
MAX_MAP = 1 << 20  # bytes that a map may take in the archive
MAX_LINE = 24  # bytes of a number in a map of version 1.0
SPARSE = b"GNU.sparse."

SparseMap = list[tuple[int, int]]  # (offset, length) of what is stored
ReadExactly = Callable[[int], bytes]  # so many bytes of the archive


@dataclass(frozen=True, slots=True)
class SparseFile:
    """Sparse file: its `size`, the stored `parts`, the bytes of the stored data that are the map (`used`), and its
    `name` if that is not the member's."""

    size: int
    parts: SparseMap
    used: int = 0
    name: bytes | None = None


def read_old_gnu_map(head: bytes, take: ReadExactly) -> SparseFile:
    """Read the map in the header `head` of type ``S``. Entries that it has no room for follow it."""
    found: SparseMap = []
    more, entries = head[482], head[386:482]
    size = parse_number(head[483:495], "size")
    blocks = 0
    while True:
        for at in range(0, len(entries) - 23, 24):
            if not entries[at + 12]:
                break
            found.append((parse_number(entries[at : at + 12], "map"), parse_number(entries[at + 12 : at + 24], "map")))
        if not more:
            return SparseFile(size, found)
        blocks += 1
        if blocks * BLOCK > MAX_MAP:
            raise LayerError(f"the map of a sparse file is longer than {MAX_MAP} bytes")
        block = take(BLOCK)
        more, entries = block[504], block[:504]


def read_sparse_records(records: Sequence[Record], take: ReadExactly) -> SparseFile | None:
    """Return the sparse file that the records of an extended header describe; None if they describe none.

    Records of which GNU tar and Go's archive/tar make different files are refused: without a whole version, or without
    a map, Go takes the member as a plain file of its own name.
    """
    known: dict[bytes, bytes] = {}
    pairs: list[int] = []  # of version 0.0: offset and length in turn
    for key, value in records:
        if not key.startswith(SPARSE):
            continue
        if key in (b"GNU.sparse.offset", b"GNU.sparse.numbytes"):
            if (key == b"GNU.sparse.offset") == bool(len(pairs) % 2):
                raise LayerError("the map of a sparse file is damaged")
            pairs.append(parse_decimal(value, "map"))
        else:
            known[key[len(SPARSE) :]] = value
    if not known and not pairs:
        return None
    if known.get(b"name") == b"":  # counts for GNU tar, and not for Go
        raise LayerError("the name of a sparse file is empty")
    sizes = {parse_decimal(known[key], "size") for key in (b"realsize", b"size") if known.get(key)}
    if len(sizes) != 1:
        raise LayerError("a sparse file has two sizes" if sizes else "a sparse file has no size")
    listed, used = known.get(b"map", b""), 0
    if (known.get(b"major"), known.get(b"minor")) == (b"1", b"0"):
        if pairs or listed:
            raise LayerError("a sparse file has two maps")
        pairs, used = read_stored_map(take)
    else:
        pairs = read_recorded_map(known, pairs, listed)
    if len(pairs) % 2:
        raise LayerError("the map of a sparse file is damaged")
    return SparseFile(sizes.pop(), list(zip(pairs[::2], pairs[1::2], strict=True)), used, known.get(b"name"))


def read_recorded_map(known: Mapping[bytes, bytes], pairs: list[int], listed: bytes) -> list[int]:
    """Return the map of version 0.0 (`pairs`) or 0.1 (`listed`), which their records contain; GNU tar writes no version
    there. Raises LayerError."""
    version = known.get(b"major"), known.get(b"minor")
    if version not in ((None, None), (b"0", b"0"), (b"0", b"1")):
        raise LayerError("a sparse file is stored in a version of GNU tar's format that envbuild does not support")
    if bool(pairs) == bool(listed):
        raise LayerError(f"a sparse file has {'two maps' if pairs else 'no map'}")
    pairs = pairs or [parse_decimal(text, "map") for text in listed.split(b",")]
    if parse_decimal(known.get(b"numblocks", b""), "map") * 2 != len(pairs):
        raise LayerError("the map of a sparse file has another length than is stated")
    return pairs


def read_stored_map(take: ReadExactly) -> tuple[list[int], int]:
    """Return the map of version 1.0, which precedes the data: (offset and length in turn, bytes that it took)."""
    text, wanted, used = b"", 1, 0
    lines: list[bytes] = []
    while len(lines) < wanted:
        used += BLOCK
        if used > MAX_MAP:
            raise LayerError(f"the map of a sparse file is longer than {MAX_MAP} bytes")
        *whole, text = (text + take(BLOCK)).split(b"\n")
        lines += whole
        if lines and wanted == 1:
            wanted = 1 + 2 * parse_decimal(lines[0], "map")
        if len(lines) < wanted and len(text) > MAX_LINE:
            raise LayerError("the map of a sparse file is damaged")
    return [parse_decimal(line, "map") for line in lines[1:wanted]], used


def check_map(sparse: SparseFile, stored: int) -> SparseMap:
    """Return the map if it is valid: parts in order, to the end of the file, and as long in total as the data in the
    `stored` bytes. Raises LayerError.

    Go takes each part from the next byte, GNU tar from the next block: so all parts but the last one that is not empty
    are whole blocks, as GNU tar and bsdtar write them. Of a file that ends in a hole, the last part is empty: without
    it GNU tar ends the file before the hole, and Go after it. GNU tar and bsdtar, which write such maps, add it.
    """
    at = total = 0
    for offset, length in sparse.parts:
        if length and total % BLOCK:
            raise LayerError(
                "a part of a sparse file is not of whole blocks, and programs differ in where the next one is"
            )
        if offset < at or length < 0:
            raise LayerError("the map of a sparse file is not in order")
        at = offset + length
        total += length
    if at != sparse.size or sparse.size > MAX_SIZE or total != stored - sparse.used:
        raise LayerError("the map of a sparse file does not fit its size")
    return sparse.parts
