"""Which CUDA code runs on which GPU.

A cubin runs on its own compute-capability major with an equal or higher minor (CUDA C++ Programming Guide, "Binary
compatibility"; not across the line between desktop and Tegra); one with suffix ``a`` runs on exactly its own, one with
``f`` within its family. PTX is compiled by the driver for anything that is not older.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

TEGRA = frozenset({53, 62, 72, 87, 101})
ENTRY = re.compile(r"(sm|compute)_([0-9]+)([af]?)")


def number(sm: str) -> int:
    """90 for "90", "9.0", "sm_90"."""
    return int(sm.removeprefix("sm_").rstrip("af").replace(".", ""))


def runs_on(entry: str, sm: str) -> bool:
    """Whether code of a fat binary ("sm_86", "sm_90a", "compute_80") runs on a GPU ("90" or "9.0")."""
    match = ENTRY.fullmatch(entry)
    if not match:
        return False  # LTO code is input of a link, nothing that runs
    own, target, suffix = int(match[2]), number(sm), match[3]
    if own == target:
        return True
    if suffix == "a" or own > target:
        return False
    same_family = own // 10 == target // 10
    if match[1] == "compute":
        return not suffix or same_family
    return same_family and own not in TEGRA and target not in TEGRA


def exactly(entries: Iterable[str], sm: str) -> bool:
    """Whether cubins are there for this GPU and neither they nor PTX for another one (suffixes do not count)."""
    matches = [match for match in map(ENTRY.fullmatch, entries) if match]
    return any(match[1] == "sm" for match in matches) and {int(match[2]) for match in matches} == {number(sm)}
