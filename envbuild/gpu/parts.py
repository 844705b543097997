"""A document that passes through the output of a job: short lines, which arrive whole and in any order.

srun and docker copy the output of all ranks to one stream. They may mix what two ranks print at once, but not within a
short line. Lines of other programs are between them. A part ends with a sign of its own: a line of another rank can
come before its newline (mpirun starts ranks on a terminal, to which Python writes the last newline apart).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from typing import Any

MARK = "envbuild-part"
LENGTH = 700  # characters of the content of a line: srun passes on at least 1024 bytes at once
LINE = re.compile(rf"{MARK} ([0-9]{{1,7}}) ([0-9]{{1,7}})/([0-9]{{1,7}}) ([0-9a-f]{{16}}) ([A-Za-z0-9+/=]+)\.")
LARGEST = 4 << 20  # bytes of a document
SHARE = 1 << 19  # bytes of a rank, where there are many: two outputs of 200,000 characters
VALUES = 20_000  # of a document: a small text can be gigabytes of empty lists
STRING = re.compile(rb'"(?:[^"\\]|\\[\s\S])*(?:"|\\?\Z)')  # also one without an end: linear in its length


def part_lines(rank: int, value: Any) -> Iterator[str]:
    """Yield the lines of the document of a rank."""
    data = base64.b64encode(zlib.compress(json.dumps(value).encode())).decode()
    name = hashlib.sha256(data.encode()).hexdigest()[:16]
    pieces = [data[start : start + LENGTH] for start in range(0, len(data), LENGTH)]
    for number, piece in enumerate(pieces, 1):
        yield f"{MARK} {rank} {number}/{len(pieces)} {name} {piece}."


def read_parts(text: str, ranks: int) -> tuple[dict[int, Any], str]:
    """Return rank → its document, of those below `ranks` that arrived whole; and the text between the parts.

    Any program of the image can print parts. So all documents together have a limit, and each has one of its values.
    """
    found: dict[int, dict[int, str]] = {}
    heads: dict[int, tuple[int, str]] = {}
    for match in LINE.finditer(text):
        rank = int(match[1])
        if rank < ranks:
            heads[rank] = (int(match[3]), match[4])
            found.setdefault(rank, {})[int(match[2])] = match[5]
    documents, left = {}, LARGEST + ranks * SHARE
    for rank, (count, name) in heads.items():
        if len(found[rank]) < count:
            continue
        data = "".join(found[rank].get(number, "") for number in range(1, count + 1))
        if hashlib.sha256(data.encode()).hexdigest()[:16] == name:
            try:
                content = unpack(data, min(left, LARGEST))
                left -= len(content)
                documents[rank] = json.loads(content)
            except (ValueError, RecursionError, zlib.error):
                continue
    return documents, LINE.sub("", text)


def unpack(data: str, most: int) -> bytes:
    """Return a document of at most `most` bytes. Raises ValueError, zlib.error."""
    content = zlib.decompressobj().decompress(base64.b64decode(data), most + 1)
    values = STRING.sub(b"", content)
    if len(content) > most or sum(values.count(mark) for mark in (b",", b"[", b"{")) > VALUES:
        raise ValueError("a document that is larger than any of a job")
    return content
