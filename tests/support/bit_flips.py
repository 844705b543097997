"""Bit rot: a bit of a file changes, and nothing else of it."""

from __future__ import annotations

import os
from pathlib import Path


def flip_bit(path: Path, position: int, bit: int = 0) -> None:
    """Flip a bit of the byte at `position`; size and times of the file remain."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
