"""Instructions beyond x86-64-v2 in a file, without disassembling all of it.

Patterns that are rare in other code and common in what compilers write for newer CPUs are searched as bytes; each
function with a hit is then measured instruction by instruction, from its start (which .eh_frame_hdr lists, also of a
stripped file), and counts when an instruction begins at the hit. Code that uses such instructions only after a CPU
check is not distinguished, but a file without a check (``cpuid``) cannot be such code.

Encodings: Intel SDM volume 2, chapter 2 (prefixes, ModR/M, VEX, EVEX) and appendix A (opcode maps). Unwind table: Linux
Standard Base, "Exception Frames". Compared with objdump, file by file, by the tests.
"""

from __future__ import annotations

import bisect
import re
import struct
from mmap import mmap

from .elf import Elf

TEXT = ".text"
SECTIONS = frozenset({TEXT})
PT_GNU_EH_FRAME = 0x6474E550
HEADER = bytes((1, 0x1B, 0x03, 0x3B))  # of the unwind table as linkers write it: 32 bits, relative to its own start

# Moves between registers and memory, as AVX writes them (every code with AVX has them), vzeroupper, BMI2 and FMA.
VEX = re.compile(
    rb"\xc5[\x78-\x7f\xf8-\xff][\x10\x11\x28\x29\x6e\x6f\x7e\x7f\xd6\xe7]|\xc5\xf8\x77"
    rb"|\xc4[\x02\x22\x42\x62\x82\xa2\xc2\xe2][\x00-\xff][\x18\x58\x59\x78\x79\x96-\x9f\xa6-\xaf\xb6-\xbf]"
    rb"|\xc4[\x02\x22\x42\x62\x82\xa2\xc2\xe2][\x00-\xff][\xf2\xf3\xf5-\xf7]",
    re.DOTALL,
)
# The same moves as AVX-512 writes them, and those of its mask registers.
EVEX = re.compile(
    rb"\x62[\x01\x11\x21\x31\x41\x51\x61\x71\x81\x91\xa1\xb1\xc1\xd1\xe1\xf1][\x7c-\x7f\xfc-\xff][\x00-\xff]"
    rb"[\x10\x11\x28\x29\x6e\x6f\x7e\x7f\xd6\xe7]|\xc5[\x78\x79\x7b\xf8\xf9\xfb][\x90-\x93]|\xc4[\x61\xe1][\xf8\xf9\xfb][\x90-\x93]",
    re.DOTALL,
)
RULES = {"x86-64-v3": VEX, "x86-64-v4": EVEX, "cpuid": re.compile(rb"\x0f\xa2")}
# Names from elsewhere that answer what the CPU can do: libgcc's, glibc's, and what products call theirs.
ASKS = re.compile(
    rb"__cpu_(model|features2|indicator_init)|getauxval|_dl_x86_(get_cpu_features|cpu_features)|\w*cpuinfo\w*"
    rb"|\w*avx\w*(support|avail|enabl)\w*|\w*[cC][pP][uU]_?([fF]lag|[fF]eature|[iI]d|[mM]odel|[sS]upport|[cC]apab)\w*"
)

PREFIXES = frozenset(b"\x66\x67\xf2\xf3\xf0\x2e\x36\x3e\x26\x64\x65")
# Per opcode: 1 with ModR/M, 2 an 8-bit and 4 a 16- or 32-bit immediate, 8 impossible in 64-bit code.
ONE = bytearray(256)
for _row in range(0, 0x40, 8):
    ONE[_row : _row + 8] = bytes((1, 1, 1, 1, 2, 4, 8, 8))
ONE[0x60:0x70] = bytes((8, 8, 8, 1, 0, 0, 0, 0, 4, 5, 2, 3, 0, 0, 0, 0))
ONE[0x70:0x90] = bytes((2,) * 16 + (3, 5, 8, 3) + (1,) * 12)
ONE[0x9A], ONE[0xA8], ONE[0xA9] = 8, 2, 4
ONE[0xB0:0xC0] = bytes((2,) * 8 + (4,) * 8)
ONE[0xC0:0xD0] = bytes((3, 3, 0, 0, 8, 8, 3, 5, 0, 0, 0, 0, 0, 2, 8, 0))  # c2, c8, ca: see below
ONE[0xD0:0xE0] = bytes((1, 1, 1, 1, 8, 8, 8, 0) + (1,) * 8)
ONE[0xE0:0xEC] = bytes((2,) * 8 + (4, 4, 8, 2))
ONE[0xF6:0xF8] = ONE[0xFE:0x100] = bytes((1, 1))
TWO = bytearray(b"\x01" * 256)
for _bare in (*range(0x05, 0x0A), 0x0B, 0x0E, *range(0x30, 0x38), 0x77, *range(0xC8, 0xD0)):
    TWO[_bare] = 0
TWO[0xA0:0xA3] = TWO[0xA8:0xAB] = bytes(3)
TWO[0x80:0x90] = bytes((4,) * 16)
for _imm in (0x0F, 0x70, 0x71, 0x72, 0x73, 0xA4, 0xAC, 0xBA, 0xC2, 0xC4, 0xC5, 0xC6):
    TWO[_imm] = 3


# One-byte opcodes whose length ModR/M does not decide: with their operands, by (REX.W + 2 * address-size prefix).
_FIXED = {0xC2: 3, 0xC8: 4, 0xCA: 3}
_LONG = dict.fromkeys(range(0xB8, 0xC0), 9)
_FAR, _NEAR = dict.fromkeys(range(0xA0, 0xA4), 9), dict.fromkeys(range(0xA0, 0xA4), 5)
FIXED = ({**_FIXED, **_FAR}, {**_FIXED, **_FAR, **_LONG}, {**_FIXED, **_NEAR}, {**_FIXED, **_NEAR, **_LONG})
TESTS = {0xF6: 2, 0xF7: 4}  # test has an immediate; not, neg, mul, div of the same opcode have none
VECTOR = {0xC5: 1, 0xC4: 2, 0x62: 3}  # the first byte of VEX and EVEX → bytes of its payload


def instruction_length(code: bytes | mmap, at: int) -> int:
    """Return the bytes of the instruction at `at` in 64-bit code; 0 where none can begin. Raises IndexError at the
    end."""
    start, narrow, wide, short = at, False, False, False
    while code[at] in PREFIXES:
        narrow, short = narrow or code[at] == 0x66, short or code[at] == 0x67
        at += 1
    if code[at] & 0xF0 == 0x40:
        wide = bool(code[at] & 8)
        at += 1
    opcode = code[at]
    if opcode == 0x0F:
        at += 1
        if code[at] in (0x38, 0x3A):
            kind = 1 if code[at] == 0x38 else 3
            at += 1
        else:
            kind, narrow = TWO[code[at]], False
    elif opcode in VECTOR:
        at, kind = _vector(code, at, opcode)
    else:
        fixed = FIXED[wide + 2 * short].get(opcode)
        if fixed:
            return at + fixed - start
        kind = ONE[opcode]
        if opcode in TESTS and code[at + 1] & 0x30 == 0:
            kind |= TESTS[opcode]
        narrow = narrow and not wide and opcode not in (0xE8, 0xE9)
    if kind & 8:
        return 0
    at += 1
    if kind & 1:
        at = _address(code, at)
    at += bool(kind & 2)
    if kind & 4:
        at += 2 if narrow else 4
    return at - start


def _vector(code: bytes | mmap, at: int, first: int) -> tuple[int, int]:
    """Return (where the opcode is, its kind) of an instruction with a VEX or EVEX prefix at `at`."""
    table = 1 if first == 0xC5 else code[at + 1] & (0x1F if first == 0xC4 else 7)
    at += VECTOR[first] + 1
    if table != 1:
        return at, 3 if table == 3 else 1
    return at, TWO[code[at]] & 3 | 1 if code[at] != 0x77 else 0


def _address(code: bytes | mmap, at: int) -> int:
    """Return where ModR/M at `at`, SIB and displacement end."""
    mode, low = code[at] >> 6, code[at] & 7
    at += 1
    if mode == 3:
        return at
    if low == 4:
        low = code[at] & 7
        at += 1
    if mode == 1:
        return at + 1
    return at + 4 if mode == 2 or low == 5 else at


def scan(data: bytes | mmap, found: Elf) -> dict[str, int]:
    """Return level → address of one instruction in .text that needs it, and ``cpuid`` → address of the query of the
    CPU's features. Raises ValueError for a damaged file."""
    offset, size = found.sections.get(TEXT, (0, 0))
    if not size or found.machine != "x86_64":
        return {}
    shift = next((at - start for _, start, at, length in found.segments if start <= offset < start + length), None)
    if shift is None:
        return {}  # nothing that is ever loaded
    try:
        starts = _functions(data, found, offset, offset + size, shift)
        places = {name: _first(data, rule, starts, offset, offset + size) for name, rule in RULES.items()}
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError(f"a damaged unwind table: {error}") from None
    return {name: place + shift for name, place in places.items() if place}


def _functions(data: bytes | mmap, found: Elf, begin: int, end: int, shift: int) -> list[int]:
    """Return offsets between `begin` and `end` where functions start, in order; `shift`: address minus offset."""
    starts = {begin}
    for type_, offset, at, size in found.segments:
        if type_ == PT_GNU_EH_FRAME and data[offset : offset + 4] == HEADER:
            count = struct.unpack_from("<I", data, offset + 8)[0]
            table = data[offset + 12 : offset + 12 + 8 * min(count, (size - 12) // 8)]
            starts.update(place + at - shift for place, _ in struct.iter_unpack("<ii", table))
    return sorted(place for place in starts if begin <= place < end)


def _first(data: bytes | mmap, rule: re.Pattern[bytes], starts: list[int], begin: int, end: int) -> int:
    """Return where an instruction begins that the rule describes; 0 if there is none."""
    function = at = -1
    for match in rule.finditer(data, begin, end):
        place = match.start()
        start = starts[bisect.bisect_right(starts, place) - 1]
        if start != function:
            function = at = start
        while 0 <= at < place:
            step = instruction_length(data, at)
            at = at + step if step else end  # what cannot be read is not code, nor is what follows it
        if at == place:
            return place
    return 0
