"""Files that were compiled for this image, and the instructions in them."""

# Strings instead of Path objects: many thousand files, and names that are not UTF-8.
# ruff: noqa: PTH123

from __future__ import annotations

import mmap
import re
from collections.abc import Mapping, Sequence
from typing import Any

from . import x86_isa
from .elf import describe_damage
from .file_walk import ImageFiles
from .link_check import Linker


def scan_compiled(
    found: ImageFiles, owners: Mapping[str, str], made: Mapping[str, Sequence[str]], linker: Linker
) -> dict[str, dict[str, Any]]:
    """Return file → the result of `x86_isa.scan`, and `asks`: a function of another file that detects the CPU.

    The files are those in "folders" and of "dists" (by name) of `made`.
    """
    folders = tuple(f"{folder}/" for folder in made["folders"])
    names = {_normal(name) for name in made["dists"]}
    result = {}
    for path, elf in found.elves.items():
        if not path.startswith(folders) and _normal(owners.get(path, "")) not in names:
            continue
        seen: dict[str, Any] = {}
        try:
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                seen.update(x86_isa.scan(data, elf))
        except (OSError, ValueError) as error:
            found.damaged[path] = describe_damage(error)
        wanted = linker.wanted(path) if elf.dynamic else []
        asks = next((name for name, _ in wanted if x86_isa.ASKS.fullmatch(name)), b"")
        if asks:
            seen["asks"] = asks.decode("utf-8", "surrogateescape")
        result[path] = seen
    return result


def _normal(name: str) -> str:
    """Return the normalized name (PyPA, "Names and normalization")."""
    return re.sub(r"[-_.]+", "-", name).lower()
