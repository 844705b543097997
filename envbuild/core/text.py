"""Texts for the terminal: lists, numbers, times, sizes, tables, and what is safe to print."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

PLAIN = r"[A-Za-z_][A-Za-z0-9_./+-]*"  # texts that a spec has without quotes


def human_list(items: Iterable[str], limit: int, *, total: int = 0, separator: str = ", ") -> str:
    """Return the first `limit` items on one line and how many more there are: ``a, b and 3 more``.

    `total`: how many there are, where `items` are not all of them."""
    named = list(items)
    more = max(total, len(named)) - min(limit, len(named))
    joint = "" if separator == ", " else separator.rstrip()
    return separator.join(named[:limit]) + (f"{joint} and {more} more" if more > 0 else "")


def counted(number: int, what: str) -> str:
    """Return a number of things: 1 file, 2 files, 3 parts of the start."""
    noun, of, whole = what.partition(" of ")
    return f"{number} {noun}{'s' if number != 1 else ''}{of}{whole}"


def passed(done: int, total: int, seconds: float) -> str:
    """Return how far a transfer is: ``1.2 GB of 4.8 GB, 120.0 MB/s, 30 s left``.

    The time left is part of it where the total is known, once the rate means something."""
    rate = done / max(seconds, 0.001)
    whole = f" of {amount(total)}" if total else ""
    left = f", {duration((total - done) / rate)} left" if total > done and rate and seconds >= 2 else ""
    return f"{amount(done)}{whole}, {amount(rate)}/s{left}"


def duration(seconds: float) -> str:
    """Return a time: 45 s, 12 min, 1 h 5 min."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def amount(size: float) -> str:
    """Return a number of bytes: 1.4 GB (decimal)."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def table(head: list[str], rows: list[list[Any]]) -> str:
    """Return columns, two blanks apart."""
    lines = [head, *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def flow(value: Any) -> str:
    """Return a value of an option as a spec has it on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(flow, value))}]"
    if isinstance(value, str) and not (re.fullmatch(PLAIN, value) and value not in ("true", "false", "null")):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def printable(value: object) -> str:
    """Return an untrusted text for a terminal: control characters and invalid text as escapes."""
    return "".join(sign if sign.isprintable() else escaped(sign) for sign in str(value))


def escaped(text: str | bytes) -> str:
    """Return a text, or a name of a file, in ASCII on one line, for output that must be the same bytes everywhere."""
    return ascii(text if isinstance(text, str) else text.decode("utf-8", "surrogateescape"))[1:-1]
