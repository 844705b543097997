"""Writes small files in the formats that verify reads: ELF with symbols and notes, fat binaries, ld.so.cache."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

BASE = 0x10000  # virtual address of offset 0, so that a reader that takes one for the other fails


def make_elf(
    *,
    bits: int = 64,
    order: str = "<",
    machine: int = 62,
    kind: int = 3,
    needed: Sequence[str] = (),
    soname: str = "",
    rpath: str = "",
    runpath: str = "",
    interpreter: str = "",
    sections: Mapping[str, bytes] | None = None,
    dynamic: bool = True,
    wants: Sequence[str] = (),
    has: Sequence[str] = (),
    gnu: bool = True,
    note: bytes = b"",
    unwind: Sequence[int] = (),
) -> bytes:
    """Return an ELF file. `wants`, `has`: dynamic symbols, found by GNU's hash table or (`gnu` False) the
    older one. `note`: content of PT_GNU_PROPERTY. `unwind`: offsets in .text where functions start."""
    word, tag = ("Q", "qQ") if bits == 64 else ("I", "iI")
    header_size, program_size, section_size = (64, 56, 64) if bits == 64 else (52, 32, 40)
    count = 1 + dynamic + bool(interpreter) + bool(note) + bool(unwind)
    body = bytearray(header_size + program_size * count)

    def put(data: bytes) -> int:
        while len(body) % 8:
            body.append(0)
        body.extend(data)
        return len(body) - len(data)

    strings, entries = bytearray(b"\0"), []
    for number, text in [*((1, name) for name in needed), (14, soname), (15, rpath), (29, runpath)]:
        if text:
            entries.append((number, len(strings)))
            strings += text.encode("utf-8", "surrogateescape") + b"\0"
    strings_at = put(bytes(strings))
    entries.append((5, BASE + strings_at))
    symbols: list[tuple[str, int, int]] = []
    if wants or has:
        found = list(has)
        buckets = max(1, len(found) // 2)
        if gnu:
            found.sort(key=lambda name: gnu_hash(name) % buckets)
        texts = {name: text_at(strings, name) for name in [*wants, *found]}
        strings_at = put(bytes(strings))
        entries[-1] = (5, BASE + strings_at)
        table = bytes(24 if bits == 64 else 16)
        for name, section in [*((name, 0) for name in wants), *((name, 1) for name in found)]:
            if bits == 64:
                table += struct.pack(order + "IBBHQQ", texts[name], 0x12, 0, section, 0, 0)
            else:
                table += struct.pack(order + "IIIBBH", texts[name], 0, 0, 0x12, 0, section)
        symbols_at = put(table)
        symbols.append((".dynsym", symbols_at, len(table)))
        hashes = gnu_table(found, 1 + len(wants), buckets, bits, order) if gnu else None
        hashes = hashes or sysv_table([*wants, *found], buckets, order)
        entries += [(6, BASE + symbols_at), (0x6FFFFEF5 if gnu else 4, BASE + put(hashes))]
    dynamic_data = b"".join(struct.pack(order + tag, *entry) for entry in [*entries, (0, 0), (1, 99999)])
    dynamic_at = put(dynamic_data)
    interpreter_at = put(interpreter.encode() + b"\0")
    places = [(name, put(content), len(content)) for name, content in (sections or {}).items()] + symbols
    note_at = put(note)
    text_place = next((at for name, at, _ in places if name == ".text"), 0)
    unwind_at = put(b"")
    if unwind:  # distances are from the table itself
        rows = b"".join(struct.pack("<ii", text_place + at - unwind_at, 0) for at in sorted(unwind))
        unwind_at = put(struct.pack("<BBBBiI", 1, 0x1B, 3, 0x3B, 0, len(unwind)) + rows)
    names, name_at = bytearray(b"\0.shstrtab\0"), []
    for name, _, _ in places:
        name_at.append(len(names))
        names += name.encode() + b"\0"
    names_at = put(bytes(names))
    form = order + ("IIQQQQIIQQ" if bits == 64 else "IIIIIIIIII")
    headers = [
        struct.pack(form, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        struct.pack(form, 1, 3, 0, 0, names_at, len(names), 0, 0, 1, 0),
    ]
    for (_, at, size), start in zip(places, name_at, strict=True):
        headers.append(struct.pack(form, start, 1, 2, BASE + at, at, size, 0, 0, 8, 0))
    sections_at = put(b"".join(headers))

    programs = [(1, 0, len(body))]
    if dynamic:
        programs.append((2, dynamic_at, len(dynamic_data)))
    if interpreter:
        programs.append((3, interpreter_at, len(interpreter) + 1))
    if note:
        programs.append((0x6474E553, note_at, len(note)))
    if unwind:
        programs.append((0x6474E550, unwind_at, 12 + 8 * len(unwind)))
    for index, (type_, at, size) in enumerate(programs):
        fields = (
            (type_, 4, at, BASE + at, 0, size, size, 8) if bits == 64 else (type_, at, BASE + at, 0, size, size, 4, 4)
        )
        struct.pack_into(
            order + ("IIQQQQQQ" if bits == 64 else "IIIIIIII"), body, header_size + index * program_size, *fields
        )
    body[:16] = b"\x7fELF" + bytes([bits // 32, 1 if order == "<" else 2, 1]) + bytes(9)
    struct.pack_into(
        f"{order}HHI3{word}IHHHHHH",
        body,
        16,
        *(kind, machine, 1, 0, header_size, sections_at, 0, header_size, program_size, len(programs)),
        *(section_size, len(headers), 1),
    )
    return bytes(body)


def text_at(strings: bytearray, text: str) -> int:
    """Add a text; its place."""
    strings += text.encode() + b"\0"
    return len(strings) - len(text.encode()) - 1


def gnu_hash(name: str) -> int:
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) % (1 << 32)
    return value


def gnu_table(found: Sequence[str], first: int, buckets: int, bits: int, order: str) -> bytes:
    """Return GNU's hash table of symbols that are sorted by bucket, from index `first` on."""
    word, shift = 0, 6
    for name in found:
        word |= 1 << gnu_hash(name) % bits | 1 << (gnu_hash(name) >> shift) % bits
    heads, chains = [0] * buckets, []
    for index, name in enumerate(found):
        bucket = gnu_hash(name) % buckets
        heads[bucket] = heads[bucket] or first + index
        last = index + 1 == len(found) or gnu_hash(found[index + 1]) % buckets != bucket
        chains.append(gnu_hash(name) & ~1 | last)
    header = struct.pack(order + "IIII", buckets, first, 1, shift)
    return (
        header
        + struct.pack(order + "QI"[bits == 32], word)
        + struct.pack(f"{order}{buckets + len(chains)}I", *heads, *chains)
    )


def sysv_table(found: Sequence[str], buckets: int, order: str) -> bytes:
    """Return the older hash table of symbols from index 1 on."""
    heads, chains = [0] * buckets, [0] * (len(found) + 1)
    for index, name in enumerate(found, 1):
        value = 0
        for byte in name.encode():
            value = (value << 4) + byte
            high = value & 0xF0000000
            value = (value ^ high >> 24) & ~high
        chains[index], heads[value % buckets] = heads[value % buckets], index
    return struct.pack(f"{order}{2 + buckets + len(chains)}I", buckets, len(chains), *heads, *chains)


def make_property(kind: int, value: int, bits: int = 64, order: str = "<") -> bytes:
    """Return a GNU property note of one property."""
    step = bits // 8
    inner = struct.pack(order + "III", kind, 4, value)
    inner += bytes(-len(inner) % step)
    return struct.pack(order + "III", 4, len(inner), 5) + b"GNU\0" + inner


KINDS = {"compute": 1, "sm": 2, "lto": 8}


def make_fatbin(entries: Sequence[tuple[str, int, str]], payload: bytes = b"\xee" * 24) -> bytes:
    """Return a fat binary of entries (word, number, suffix), with header lengths and flags as nvcc 13.2 writes."""
    body = b""
    for word, number, suffix in entries:
        flags = 0x8011 | {"": 0, "a": 0x100000, "f": 0x1200000}[suffix]
        header = {"compute": 80, "sm": 104 if suffix == "f" else 64, "lto": 120}[word]
        entry = struct.pack("<HHIQ", KINDS[word], 0x101, header, len(payload))
        entry += struct.pack("<IIHHIIIQ", 17, 0, 8, 1, number, 0, 0, flags)
        body += entry.ljust(header, b"\0") + payload
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def make_cache(entries: Sequence[tuple[str, str, bool]], old_table: bool = False) -> bytes:
    """ld.so.cache of (SONAME, path, only for newer CPUs); with a table of the old format before it on demand."""
    table, strings = b"", b""
    start = 48 + 24 * len(entries)
    for soname, path, special in entries:
        key = start + len(strings)
        strings += soname.encode() + b"\0"
        value = start + len(strings)
        strings += path.encode() + b"\0"
        table += struct.pack("<iIIIQ", 0x303, key, value, 0, (1 << 62) | 2 if special else 0)
    header = b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI12x", len(entries), len(strings), 2, 0)
    return (b"ld.so-1.7.0\0" + bytes(4) if old_table else b"") + header + table + strings
