"""ELF headers: the parts of a file that the loader and the audit need, without reading its code.

Layouts: ELF gABI, chapters 4 (header, sections) and 5 (program header, dynamic section). 32 and 64 bits, both byte
orders.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from mmap import ACCESS_READ, MADV_RANDOM, mmap

MAGIC = b"\x7fELF"
MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 190: "cuda", 243: "riscv64", 247: "bpf"}
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NULL, DT_NEEDED, DT_STRTAB, DT_SONAME, DT_RPATH, DT_RUNPATH = 0, 1, 5, 14, 15, 29
# Bytes of a string and of all strings of a dynamic section, and its entries: many can be one string of a small file.
LONGEST, MAX_STRINGS, MAX_ENTRIES = 1 << 16, 1 << 20, 1 << 16
SHT_NOBITS = 8  # a section that a separate debug file only names
LIMITS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))  # of the process and the machine: no fault of a file

# What `symbols` reads: tables of the dynamic section (gABI; those above 0x60000000 are GNU's).
DT_HASH, DT_SYMTAB, DT_GNU_HASH, DT_VERSYM = 4, 6, 0x6FFFFEF5, 0x6FFFFFF0
DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
SYMBOL_TAGS = frozenset(
    (DT_HASH, DT_STRTAB, DT_SYMTAB, DT_GNU_HASH, DT_VERSYM, DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM)
)

# (program header, section header, dynamic entry) as struct formats without byte order
FORMATS = {64: ("IIQQQQQQ", "IIQQQQIIQQ", "qQ"), 32: ("IIIIIIII", "IIIIIIIIII", "iI")}


@dataclass(frozen=True)
class Elf:
    """Headers of a file.

    `kind` is e_type (1 relocatable, 2 program, 3 shared). `rpath` and `runpath` are unexpanded folders. `dynamic` is
    False for files that the loader never sees. `sections` holds name → (offset, size in bytes) of the requested
    sections. `order` is the byte order ("<", ">"), `segments` are the program headers as (type, offset, virtual
    address, size in the file), `tags` the entries of the dynamic section that `symbols` reads."""

    bits: int
    machine: str
    kind: int
    interpreter: str
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    dynamic: bool
    sections: dict[str, tuple[int, int]]
    order: str = "<"
    segments: tuple[tuple[int, int, int, int], ...] = ()
    tags: dict[int, int] = field(default_factory=dict)

    def offset(self, address: int) -> int:
        """Return the offset in the file of a virtual address."""
        return _offset(self.segments, address)


def map_file(descriptor: int) -> mmap:
    """Map a file of which a few places are read: headers, and tables by their hashes.

    Without the advice, each page fault reads as much ahead as the mount is set to: with 4 MiB, the audit of an image
    with torch read 3.3 GB of its 5.8 GB for less than 0.2 GB of tables.
    """
    if sys.version_info >= (3, 13):  # before, each map has a descriptor of its own
        data = mmap(descriptor, 0, access=ACCESS_READ, trackfd=False)
    else:
        data = mmap(descriptor, 0, access=ACCESS_READ)
    data.madvise(MADV_RANDOM)
    return data


def describe_damage(error: OSError | ValueError) -> str:
    """Return why a file cannot be read. Raises `error` where a limit of the machine is the cause: the file may be
    whole."""
    if not isinstance(error, OSError) or not error.errno:
        return str(error)
    if error.errno in LIMITS:
        raise error
    return os.strerror(error.errno)


def parse(data: bytes | mmap, wanted: frozenset[str] = frozenset()) -> Elf:
    """Read the headers of an ELF file. `wanted`: names of sections to locate. Raises ValueError for a damaged file."""
    if data[:4] != MAGIC or len(data) < 52 or data[4] not in (1, 2) or data[5] not in (1, 2):
        raise ValueError("no ELF header")
    bits, order = 32 * data[4], "<>"[data[5] - 1]
    word = "Q" if bits == 64 else "I"
    try:
        kind, machine, _, _, phoff, shoff, _, _, phentsize, phnum, shentsize, shnum, shstrndx = struct.unpack_from(
            f"{order}HHI3{word}IHHHHHH", data, 16
        )
        programs = tuple(_programs(data, order, bits, phoff, phentsize, phnum))
        interpreter = next((read_string(data, at) for type_, at, _, _ in programs if type_ == PT_INTERP), "")
        dynamic = next(((at, size) for type_, at, _, size in programs if type_ == PT_DYNAMIC), None)
        entries = list(_dynamic(data, order, bits, *dynamic)) if dynamic else []
        table = next((_offset(programs, value) for tag, value in entries if tag == DT_STRTAB), 0)
        strings: dict[int, list[str]] = {tag: [] for tag in (DT_NEEDED, DT_SONAME, DT_RPATH, DT_RUNPATH)}
        left = MAX_STRINGS
        for tag, value in entries:
            if tag in strings and table:
                strings[tag].append(read_string(data, table + value))
                left -= len(strings[tag][-1]) + 1
                if left < 0:
                    raise IndexError(f"more than {MAX_STRINGS} bytes of strings in the dynamic section")
        sections = {}
        if wanted and shoff:
            sections = dict(_sections(data, order, bits, shoff, shentsize, shnum, shstrndx, wanted))
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError(f"truncated or damaged: {error}") from None
    return Elf(
        bits=bits,
        machine=MACHINES.get(machine, str(machine)),
        kind=kind,
        interpreter=interpreter,
        soname="".join(strings[DT_SONAME][:1]),
        needed=tuple(strings[DT_NEEDED]),
        rpath=_folders(strings[DT_RPATH]),
        runpath=_folders(strings[DT_RUNPATH]),
        dynamic=dynamic is not None,
        sections=sections,
        order=order,
        segments=programs,
        tags={tag: value for tag, value in entries if tag in SYMBOL_TAGS},
    )


def read_string(data: bytes | mmap, at: int) -> str:
    """Return the string at offset `at`, which ends with a NUL byte. Raises IndexError."""
    return read_name(data, at, LONGEST).decode("utf-8", "surrogateescape")


def read_name(data: bytes | mmap, at: int, longest: int) -> bytes:
    """Return the bytes at offset `at` up to a NUL byte, at most `longest`. Raises IndexError."""
    end = data.find(b"\0", at, at + longest + 1) if at >= 0 else -1
    if end < 0:
        raise IndexError(f"a string outside the file, or one of more than {longest} bytes")
    return data[at:end]


def _programs(
    data: bytes | mmap, order: str, bits: int, offset: int, step: int, count: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yield program headers as (type, offset, virtual address, size in the file)."""
    for index in range(count):
        fields = struct.unpack_from(order + FORMATS[bits][0], data, offset + step * index)
        first = 2 if bits == 64 else 1  # with 64 bits the flags are the second field
        yield fields[0], fields[first], fields[first + 1], fields[first + 3]


def _offset(programs: tuple[tuple[int, int, int, int], ...], address: int) -> int:
    for type_, offset, start, size in programs:
        if type_ == PT_LOAD and start <= address < start + size:
            return offset + address - start
    return address


def _dynamic(data: bytes | mmap, order: str, bits: int, offset: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield entries of the dynamic section as (tag, value), up to DT_NULL."""
    form = order + FORMATS[bits][2]
    step = struct.calcsize(form)
    for at in range(offset, offset + size - step + 1, step):
        if at - offset >= MAX_ENTRIES * step:
            raise IndexError(f"more than {MAX_ENTRIES} entries in the dynamic section")
        tag, value = struct.unpack_from(form, data, at)
        if tag == DT_NULL:
            return
        yield tag, value


def _sections(
    data: bytes | mmap, order: str, bits: int, offset: int, step: int, count: int, names: int, wanted: frozenset[str]
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the wanted sections that have content in this file, as (name, (offset, size))."""
    form = order + FORMATS[bits][1]
    headers = [struct.unpack_from(form, data, offset + index * step) for index in range(count)]
    if not headers:
        return
    table = headers[names][4]
    for header in headers:
        name = read_string(data, table + header[0])
        if name in wanted and header[1] != SHT_NOBITS and header[5]:
            yield name, (header[4], header[5])


def _folders(values: list[str]) -> tuple[str, ...]:
    return tuple(folder for value in values for folder in value.split(":") if folder)
