"""CPU level that a file itself requires: the GNU property note, which the loader obeys as well (it refuses such files).

Layout and numbers: x86-64 psABI, "Program Property"; Linux gABI extensions, "Program Property". A linker writes it from
the notes of the objects, and gcc writes those only with ``-mneeded``: a file without it states no level.
"""

from __future__ import annotations

import struct
from mmap import mmap

from .elf import Elf

PT_NOTE, PT_GNU_PROPERTY = 4, 0x6474E553
NT_GNU_PROPERTY_TYPE_0 = 5
X86_ISA_1_NEEDED = 0xC0008002
LONGEST = 1 << 20  # bytes of the notes of a segment that are read
LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")  # bits 0 to 3


def read_level(data: bytes | mmap, found: Elf) -> str:
    """Return the level that the file states; "" if it states none. Raises ValueError for a damaged note."""
    if found.machine not in ("x86_64", "i386"):
        return ""
    bits = 0
    try:
        for type_, offset, _, size in found.segments:
            if type_ in (PT_NOTE, PT_GNU_PROPERTY):
                bits |= _bits(data[offset : offset + min(size, LONGEST)], found)
    except struct.error as error:
        raise ValueError(f"a damaged note: {error}") from None
    return LEVELS[min(bits.bit_length(), len(LEVELS)) - 1] if bits else ""


def _bits(notes: bytes, found: Elf) -> int:
    """Return the needed bits of all notes of one segment."""
    at, result, step = 0, 0, found.bits // 8
    while at + 12 <= len(notes):
        name, size, kind = struct.unpack_from(found.order + "III", notes, at)
        start = at + 12 + (name + 3 & ~3)
        if kind == NT_GNU_PROPERTY_TYPE_0 and notes[at + 12 : at + 16] == b"GNU\0":
            inner, end = start, start + size
            while inner + 8 <= end:
                property_, length = struct.unpack_from(found.order + "II", notes, inner)
                if property_ == X86_ISA_1_NEEDED and length == 4:
                    result |= struct.unpack_from(found.order + "I", notes, inner + 8)[0]
                inner += 8 + (length + step - 1 & -step)
            at = start + (size + step - 1 & -step)
        else:
            at = start + (size + 3 & ~3)
    return result
