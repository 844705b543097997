"""Headers of tar archives, made by hand (POSIX.1-2017, pax(1))."""

from __future__ import annotations

import tarfile
from pathlib import Path


def extended(kind: bytes, content: bytes) -> bytes:
    head = tarfile.TarInfo("extended")
    head.type, head.size = kind, len(content)
    return head.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def member(name: str, size: int = 0) -> bytes:
    found = tarfile.TarInfo(name)
    found.size = size
    return found.tobuf(tarfile.GNU_FORMAT)


def hard_link(name: str, target: str) -> bytes:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = tarfile.LNKTYPE, target
    return found.tobuf(tarfile.GNU_FORMAT)


def record(key: str, value: str) -> bytes:
    length = len(key) + len(value) + 3
    while len(f"{length} {key}={value}\n") != length:
        length += 1
    return f"{length} {key}={value}\n".encode()


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
