"""Decompression of LZO1X blocks, which `enroot import` writes by default. Plain Python: no library of the index
that unpacks LZO comes without a C library to install first, and metadata and small files are all that has to be
unpacked of such images (enroot stores blocks of large files as they are).

Source of the format: the Linux kernel's Documentation/staging/lzo.rst.
"""

from __future__ import annotations


def unpack_lzo(data: bytes, limit: int) -> bytes:
    """Return the content of one block, at most `limit` bytes. Raises ValueError or IndexError for a damaged one."""
    out = bytearray()
    at = 0
    literals = 0  # how many the last instruction ended with: 0 to 3, or 4 for a long run
    if data[0] > 17:
        at, literals = 1, data[0] - 17
        out += data[1 : 1 + literals]
        at += literals
        literals = min(literals, 4)
    while True:
        code = data[at]
        at += 1
        if code < 16 and not literals:
            length = code
            if not length:
                length, at = _read_length(data, at, 15)
            length += 3
            out += data[at : at + length]
            at += length
            literals = 4
            if len(out) > limit:
                raise ValueError("it is larger than it may be")
            continue
        if code >= 64:
            length = (code >> 5) + 1
            distance = (data[at] << 3) + (code >> 2 & 7) + 1
            at += 1
            literals = code & 3
        elif code >= 32:
            length = code & 31
            if not length:
                length, at = _read_length(data, at, 31)
            length += 2
            pair = data[at] | data[at + 1] << 8
            at += 2
            distance, literals = (pair >> 2) + 1, pair & 3
        elif code >= 16:
            length = code & 7
            if not length:
                length, at = _read_length(data, at, 7)
            length += 2
            pair = data[at] | data[at + 1] << 8
            at += 2
            distance, literals = ((code & 8) << 11) + (pair >> 2), pair & 3
            if not distance:
                break  # the end
            distance += 16384
        else:
            length = 3 if literals == 4 else 2
            distance = (data[at] << 2) + (code >> 2) + (2049 if literals == 4 else 1)
            at += 1
            literals = code & 3
        start = len(out) - distance
        if start < 0 or len(out) + length > limit:
            raise ValueError("it refers to a missing position")
        if distance >= length:
            out += out[start : start + length]
        else:  # the copy reads what it writes: a pattern
            pattern = out[start:]
            out += (pattern * (length // distance + 1))[:length]
        if literals:
            out += data[at : at + literals]
            at += literals
    if at != len(data):
        raise ValueError("it continues behind its end")
    return bytes(out)


def _read_length(data: bytes, at: int, base: int) -> tuple[int, int]:
    """Return a length that does not fit its bits: each zero byte adds 255, the first other byte ends it."""
    begin = at
    while not data[at]:
        at += 1
    return base + 255 * (at - begin) + data[at], at + 1
