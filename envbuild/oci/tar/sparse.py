"""Maps of sparse files in tars: which parts of a file are stored, the rest being zeros.

Formats: GNU tar manual, "Storing Sparse Files": the old GNU format (type ``S``), and in extended headers the versions
0.0, 0.1 and 1.0. Maps are refused when they are longer than `MAP_MOST`, so that a small archive cannot ask for much
memory (Go's archive/tar has the same limit).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from envbuild.oci.tar.fields import SIZE_MOST, LayerError, Record, decimal, number

BLOCK = 512
MAP_MOST = 1 << 20  # bytes that a map may take in the archive
LINE_MOST = 24  # bytes of a number in a map of version 1.0
SPARSE = b"GNU.sparse."

Map = list[tuple[int, int]]  # (offset, length) of what is stored
Take = Callable[[int], bytes]  # so many bytes of the archive


@dataclass(frozen=True, slots=True)
class Sparse:
    """A sparse file: its size, what of it is stored, how many bytes of its stored data the map took, and its name where
    that is not the member's."""

    size: int
    parts: Map
    used: int = 0
    name: bytes | None = None


def old_gnu(head: bytes, take: Take) -> Sparse:
    """Read the map in the header `head` of type ``S``. Entries that it has no room for follow it."""
    found: Map = []
    more, entries = head[482], head[386:482]
    size = number(head[483:495], "size")
    blocks = 0
    while True:
        for at in range(0, len(entries) - 23, 24):
            if not entries[at + 12]:
                break
            found.append((number(entries[at : at + 12], "map"), number(entries[at + 12 : at + 24], "map")))
        if not more:
            return Sparse(size, found)
        blocks += 1
        if blocks * BLOCK > MAP_MOST:
            raise LayerError(f"the map of a sparse file is longer than {MAP_MOST} bytes")
        block = take(BLOCK)
        more, entries = block[504], block[:504]


def of_records(records: Sequence[Record], take: Take) -> Sparse | None:
    """Return what the records of an extended header say of a sparse file; None when they name none."""
    known: dict[bytes, bytes] = {}
    pairs: list[int] = []  # of version 0.0: offset and length in turn
    for key, value in records:
        if not key.startswith(SPARSE):
            continue
        if key in (b"GNU.sparse.offset", b"GNU.sparse.numbytes"):
            if (key == b"GNU.sparse.offset") == bool(len(pairs) % 2):
                raise LayerError("the map of a sparse file is damaged")
            pairs.append(decimal(value, "map"))
        else:
            known[key[len(SPARSE) :]] = value
    if not known and not pairs:
        return None
    name = known.get(b"name") or None
    size = known.get(b"realsize") or known.get(b"size")
    if not size:
        raise LayerError("a sparse file has no size")
    version = known.get(b"major", b"0"), known.get(b"minor", b"1")
    used = 0
    if version == (b"1", b"0"):
        pairs, used = stored(take)
    elif version not in ((b"0", b"0"), (b"0", b"1")):
        raise LayerError("a sparse file is stored in a version of GNU tar's format that envbuild does not know")
    elif b"map" in known:
        pairs = [decimal(text, "map") for text in known[b"map"].split(b",")] if known[b"map"] else []
    if len(pairs) % 2:
        raise LayerError("the map of a sparse file is damaged")
    return Sparse(decimal(size, "size"), list(zip(pairs[::2], pairs[1::2], strict=True)), used, name)


def stored(take: Take) -> tuple[list[int], int]:
    """The map of version 1.0, which stands before the data: (offset and length in turn, bytes that it took)."""
    text, wanted, used = b"", 1, 0
    lines: list[bytes] = []
    while len(lines) < wanted:
        used += BLOCK
        if used > MAP_MOST:
            raise LayerError(f"the map of a sparse file is longer than {MAP_MOST} bytes")
        *whole, text = (text + take(BLOCK)).split(b"\n")
        lines += whole
        if lines and wanted == 1:
            wanted = 1 + 2 * decimal(lines[0], "map")
        if len(lines) < wanted and len(text) > LINE_MOST:
            raise LayerError("the map of a sparse file is damaged")
    return [decimal(line, "map") for line in lines[1:wanted]], used


def checked(sparse: Sparse, stored: int) -> Map:
    """Return the map when it is sound: parts in order, inside of the file, and as long together as what of the `stored`
    bytes is data."""
    at = total = 0
    for offset, length in sparse.parts:
        if offset < at or length < 0:
            raise LayerError("the map of a sparse file is not in order")
        at = offset + length
        total += length
    if at > sparse.size or sparse.size > SIZE_MOST or total != stored - sparse.used:
        raise LayerError("the map of a sparse file does not fit its size")
    return sparse.parts
