"""GPU architectures of the CUDA code in a library, from the headers of its fat binaries alone.

A fat binary begins with the 32-bit word 0xBA55ED50, version, header length (16 bits each) and the length of what
follows (64 bits). Each entry has a header: kind (16), version (16), header length (32), payload length (64), three
words, then the architecture as a 32-bit number at byte 28 and 64 flag bits at byte 40. The headers are never
compressed. NVIDIA does not document this; the fields were compared with ``cuobjdump --list-elf --list-ptx`` of CUDA
13.2 on what nvcc wrote for sm_80, sm_90, sm_90a, sm_100f, compute_90 and compute_100a in every compression mode, and on
NCCL 2.30.7.

A library of relocatable code has its objects in RELOCATABLE and what was linked of them in CODE. For a GPU that CODE
does not serve, the driver compiles the PTX of every object and links the results when the library is loaded (NVIDIA,
nvcc manual, Using Separate Compilation in CUDA, JIT Linking). So PTX of RELOCATABLE counts where each object has it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from mmap import mmap

MAGIC = 0xBA55ED50
CODE = ".nv_fatbin"  # what the driver is given
RELOCATABLE = "__nv_relfatbin"  # objects: input of a device link
SECTIONS = frozenset({CODE, RELOCATABLE})
KINDS = {1: "compute", 2: "sm", 8: "lto"}
MOST = 1000  # architectures of one file
PADDING = bytes(4096)  # zeros that are skipped at a time: a section of 2 GiB can be nothing else
SPECIFIC, FAMILY = 0x100000, 0x200000  # flags: sm_90a, sm_100f


def count_architectures(data: bytes | mmap, sections: dict[str, tuple[int, int]]) -> dict[str, int]:
    """Return how often a library has each architecture: ``{"sm_90": 3, "sm_90a": 1, "compute_90": 1}``, or {}.

    `sections` as `elf.parse` found them. Raises ValueError if the bytes violate the format.
    """
    found = _count(read_binaries(data, *sections[CODE])) if CODE in sections else {}
    if RELOCATABLE not in sections:
        return found
    if not found:  # nothing was linked
        return _count(read_binaries(data, *sections[RELOCATABLE]))
    return _in_all(read_binaries(data, *sections[RELOCATABLE])) | found


def _count(binaries: Iterator[dict[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for binary in binaries:
        for arch, count in binary.items():
            found[arch] = found.get(arch, 0) + count
        _limit(found)
    return found


def _in_all(binaries: Iterator[dict[str, int]]) -> dict[str, int]:
    """Return the PTX that every one of the objects has."""
    found: dict[str, int] | None = None
    for binary in binaries:
        own = {arch: count for arch, count in binary.items() if arch.startswith("compute_")}
        found = own if found is None else {arch: found[arch] + own[arch] for arch in found.keys() & own.keys()}
    return found or {}


def _limit(found: dict[str, int]) -> None:
    if len(found) > MOST:
        raise ValueError(f"more than {MOST} architectures")


def read_binaries(data: bytes | mmap, offset: int, size: int) -> Iterator[dict[str, int]]:
    """Yield the architectures of each fat binary of one section: name → entries."""
    end = offset + size
    if end > len(data):
        raise ValueError("a fat binary section reaches beyond the file")
    while offset + 16 <= end:
        magic, _, header, length = struct.unpack_from("<IHHQ", data, offset)
        if magic == 0:  # alignment between fat binaries
            offset += len(PADDING) if data[offset : min(offset + len(PADDING), end)] == PADDING else 8
            continue
        if magic != MAGIC or header < 16 or offset + header + length > end:
            raise ValueError(f"no fat binary at offset {offset}")
        found: dict[str, int] = {}
        for arch in _entries(data, offset + header, offset + header + length):
            found[arch] = found.get(arch, 0) + 1
            _limit(found)
        yield found
        offset += (header + length + 7) & ~7


def _entries(data: bytes | mmap, offset: int, end: int) -> Iterator[str]:
    while offset + 48 <= end:
        kind, _, header, length = struct.unpack_from("<HHIQ", data, offset)
        arch, flags = struct.unpack_from("<I", data, offset + 28)[0], struct.unpack_from("<Q", data, offset + 40)[0]
        if header < 48 or offset + header + length > end:
            raise ValueError(f"a damaged fat binary entry at offset {offset}")
        suffix = "a" if flags & SPECIFIC else "f" if flags & FAMILY else ""
        yield f"{KINDS.get(kind, f'kind{kind}')}_{arch}{suffix}"
        offset += header + length
