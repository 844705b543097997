"""Dynamic symbols of one ELF file: those that it needs, those that it defines, and their versions.

A name is searched in the file's own hash table, as the loader does it, so that a library with 100000 symbols costs no
more than a small one. Layouts: ELF gABI, chapter 5 (symbol table, hash table); glibc, elf/dl-lookup.c (GNU hash table,
which versions match); Linux Standard Base, "Symbol Versioning".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from mmap import mmap
from typing import Any

from . import elf

TABLE = ".dynsym"
SECTIONS = frozenset({TABLE})
FORMATS = {64: "IBBHQQ", 32: "IIIBBH"}
GLOBAL, WEAK, UNIQUE = 1, 2, 10  # binding
HIDDEN = 0x8000  # of a version index: not the default version of its name
OWN_NAME, MAY_LACK = 1, 2  # flags of a version: the file itself; a version that may be missing
LONGEST = 1 << 20  # steps along a chain, so that a damaged one ends; bytes of a symbol
# Bytes of the names of all versions, and of all symbols that a file needs, with what an entry takes besides: tables can
# name one long string many times.
MAX_VERSIONS, MAX_WANTED, ENTRY = 16 << 20, 256 << 20, 64
CHUNK = 1 << 16  # symbols that are read at once
BROKEN = (struct.error, IndexError, OverflowError, ZeroDivisionError)


def gnu_hash(name: bytes) -> int:
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def sysv_hash(name: bytes) -> int:
    value = 0
    for byte in name:
        value = (value << 4) + byte
        value = (value ^ (value & 0xF0000000) >> 24) & 0xFFFFFFF
    return value


class Symbols:
    """Dynamic symbols of the file whose bytes are `data`. `needs`: file → version → whether it must be there;
    `versions`: those that the file defines. Raises ValueError for a damaged file, here and in the methods."""

    def __init__(self, data: bytes | mmap, found: elf.Elf) -> None:
        self.data, self.elf = data, found
        self.form = struct.Struct(found.order + FORMATS[found.bits])
        self.half, self.word = (struct.Struct(found.order + form).unpack_from for form in "HI")
        self.bloom = struct.Struct(found.order + ("Q" if found.bits == 64 else "I"))
        self.symbols, self.strings = self._place(elf.DT_SYMTAB), self._place(elf.DT_STRTAB)
        self.gnu, self.sysv = self._place(elf.DT_GNU_HASH), self._place(elf.DT_HASH)
        self.indices = self._place(elf.DT_VERSYM)
        self.needs: dict[str, dict[str, bool]] = {}
        self.versions: set[str] = set()
        self.left = MAX_VERSIONS
        self.by_index: dict[int, str] = {}  # both kinds: a file counts them together
        try:
            self._needs()
            self._versions()
            self.header = struct.unpack_from(found.order + "IIII", data, self.gnu) if self.gnu else (0, 0, 0, 0)
        except BROKEN as error:
            raise ValueError(f"damaged symbol versions: {error}") from None

    def wanted(self) -> list[tuple[bytes, str]]:
        """Return (name, version or "") of each symbol that other files must define; weak ones are left out."""
        try:
            return list(self._wanted())
        except BROKEN as error:
            raise ValueError(f"a damaged symbol table: {error}") from None

    def has(self, name: bytes, version: str = "", hashed: int = 0) -> bool:
        """Return whether the file defines the symbol. `hashed`: gnu_hash(name), if the caller knows it."""
        try:
            places = self._gnu(hashed or gnu_hash(name)) if self.gnu else self._sysv(name)
            return any(self._defines(index, name) and self._fits(index, version) for index in places)
        except BROKEN as error:
            raise ValueError(f"a damaged symbol table: {error}") from None

    def _wanted(self) -> Iterator[tuple[bytes, str]]:
        offset, size = self.elf.sections.get(TABLE, (0, 0))
        if not size:  # no section headers: GNU's hash table begins after what is wanted, the other one counts all
            count = self.word(self.data, self.sysv + 4)[0] if self.sysv else self.header[1]
            offset, size = self.symbols, count * self.form.size
        wide = self.elf.bits == 64
        left = MAX_WANTED
        for number, fields in enumerate(self._entries(offset, size)):
            section, info = (fields[3], fields[1]) if wide else (fields[5], fields[3])
            if section == 0 and fields[0] and info >> 4 in (GLOBAL, UNIQUE):
                version = self._index(number) & ~HIDDEN if self.indices else 0
                name = elf.read_name(self.data, self.strings + fields[0], LONGEST)
                left -= len(name) + ENTRY
                if left < 0:
                    raise IndexError(f"more than {MAX_WANTED} bytes of symbols")
                yield name, self.by_index.get(version, "")

    def _entries(self, offset: int, size: int) -> Iterator[tuple[Any, ...]]:
        """Yield the entries of the symbol table, which may be as long as the file."""
        step, end = self.form.size, min(offset + size, len(self.data))
        for at in range(offset, end - step + 1, CHUNK * step):
            yield from self.form.iter_unpack(self.data[at : at + min(CHUNK, (end - at) // step) * step])

    def _text(self, at: int) -> str:
        """Return a string of the version tables. Raises IndexError when they have too many bytes of them."""
        text = elf.read_string(self.data, self.strings + at)
        self.left -= len(text) + ENTRY
        if self.left < 0:
            raise IndexError(f"more than {MAX_VERSIONS} bytes of versions")
        return text

    def _gnu(self, hashed: int) -> Iterator[int]:
        """Yield indices of symbols with this hash; the filter excludes most hashes at once."""
        buckets, first, words, shift = self.header
        bits, at = self.elf.bits, self.gnu + 16
        word = self.bloom.unpack_from(self.data, at + hashed // bits % words * self.bloom.size)[0]
        if not word >> hashed % bits & word >> (hashed >> shift) % bits & 1:
            return
        at += words * self.bloom.size
        index = self.word(self.data, at + hashed % buckets * 4)[0]
        at += buckets * 4
        for _ in range(LONGEST if index >= first else 0):
            other = self.word(self.data, at + (index - first) * 4)[0]
            if other | 1 == hashed | 1:
                yield index
            if other & 1:
                return
            index += 1

    def _sysv(self, name: bytes) -> Iterator[int]:
        if not self.sysv:
            return
        buckets, chains = struct.unpack_from(self.elf.order + "II", self.data, self.sysv)
        at = self.sysv + 8
        index = self.word(self.data, at + sysv_hash(name) % buckets * 4)[0]
        for _ in range(min(chains, LONGEST)):
            if not index:
                return
            yield index
            index = self.word(self.data, at + (buckets + index) * 4)[0]

    def _defines(self, index: int, name: bytes) -> bool:
        fields = self.form.unpack_from(self.data, self.symbols + index * self.form.size)
        section, info = (fields[3], fields[1]) if self.elf.bits == 64 else (fields[5], fields[3])
        start = self.strings + fields[0]
        text = self.data[start : start + len(name) + 1]
        return bool(section) and info >> 4 in (GLOBAL, WEAK, UNIQUE) and text == name + b"\0"

    def _fits(self, index: int, version: str) -> bool:
        """Return what the loader decides: a file without versions has them all; a symbol without one, every one."""
        if not version or not self.indices or not self.versions:
            return True
        number = self._index(index)
        own = self.by_index.get(number & ~HIDDEN, "")
        return own == version or (not own and not number & HIDDEN)

    def _needs(self) -> None:
        at = self._place(elf.DT_VERNEED)
        for _ in range(self.elf.tags.get(elf.DT_VERNEEDNUM, 0) if at else 0):
            _, count, file, first, following = struct.unpack_from(self.elf.order + "HHIII", self.data, at)
            versions = self.needs.setdefault(self._text(file), {})
            entry = at + first
            for _ in range(count):
                _, flags, index, name, step = struct.unpack_from(self.elf.order + "IHHII", self.data, entry)
                self.by_index[index & ~HIDDEN] = self._text(name)
                versions[self.by_index[index & ~HIDDEN]] = not flags & MAY_LACK
                entry += step
            if not following:
                return
            at += following

    def _versions(self) -> None:
        at = self._place(elf.DT_VERDEF)
        for _ in range(self.elf.tags.get(elf.DT_VERDEFNUM, 0) if at else 0):
            _, flags, index, _, _, first, following = struct.unpack_from(self.elf.order + "HHHHIII", self.data, at)
            name = self._text(self.word(self.data, at + first)[0])
            self.versions.add(name)
            if not flags & OWN_NAME:
                self.by_index[index & ~HIDDEN] = name
            if not following:
                return
            at += following

    def _index(self, number: int) -> int:
        return int(self.half(self.data, self.indices + 2 * number)[0])

    def _place(self, tag: int) -> int:
        """Return the offset of a table in the file; 0 if there is none."""
        return self.elf.offset(self.elf.tags[tag]) if self.elf.tags.get(tag) else 0
