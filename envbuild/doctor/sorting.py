"""Names sorted with their numbers by value: mlx5_2 before mlx5_10."""

from __future__ import annotations

import re

PCI = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")  # domain, bus, device, function


def sorting_key(name: str) -> list[int | str]:
    """Return the parts of a name by which it is sorted, the first one a text."""
    if PCI.fullmatch(name):
        return [name.lower()]
    return [int(part) if part.isdecimal() else part for part in split_digits(name)]


def split_digits(name: str) -> list[str]:
    """Return a name in pieces that are all digits or have none, beginning with one that has none."""
    pieces = [""]
    for sign in name:
        digit = sign.isdecimal()
        if digit != (len(pieces) % 2 == 0):
            pieces.append("")
        pieces[-1] += sign
    return pieces
