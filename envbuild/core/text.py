"""Texts for the terminal: lists, numbers, times, sizes, tables, and what is safe to print."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Any

PLAIN = r"[A-Za-z_][A-Za-z0-9_./+-]*"  # texts that a spec has without quotes

# Characters that are not seen on a terminal, or change how others are seen there: what is read is not what is written.
# Control characters, Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties.txt) without the variation selectors
# that emoji have (FE00-FE0F), line separators, annotations, surrogates, noncharacters of the first plane.
HIDDEN = (
    (0x00, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5),
    (0x180B, 0x180F), (0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xD800, 0xDFFF),
    (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB), (0xFFFE, 0xFFFF), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)  # fmt: skip
BIDIRECTIONAL = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # they reorder text
LINE_ENDS = "\n\r\x85\u2028\u2029"
# The login of an address, also of a password with a blank. A port, a path that has "//" and "@", and the digest of a
# reference are none. A login ends at the next slash, so that each sign is read by few attempts; tokens of ECR and Entra
# have more than 2,000 characters.
LOGIN = re.compile(
    r"(:/{2,}|\bhttps?:/|(?<![^\s'\"(=<\[,;])//(?=[^/\s:@]{0,999}:))"
    r"(?:[^/\s]*|[^/\s:@]{0,999}:(?!\d+[\s:])(?:[^/\s@]|(?<=\w) (?=\w)){1,999})@(?!sha256:)",
    re.IGNORECASE,
)
# The part of a word up to its last "@": a login where the slashes of an address are missing. It begins only where the
# word does: from each sign of a long word a search to its end would take the square of the length.
UP_TO_AT = re.compile(r"(?<![^/\s])[^/\s]*@(?!sha256:)")
SCHEME = re.compile(r"\b(?:https?|docker):", re.IGNORECASE)
OWN_LINE = re.compile(r"\n((?:error|warning|hint):)", re.IGNORECASE)
NAME_LENGTH = 200  # characters of an untrusted text in a list


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


def hidden_characters(text: str, allowed: str = "") -> set[str]:
    """Return the characters of `HIDDEN` in a text, but for those in `allowed`."""
    if text.isascii() and text.isprintable():
        return set()
    return {sign for sign in set(text) if sign not in allowed and _is_hidden(sign)}


def first_hidden(text: str, allowed: str = "") -> str:
    """Return the first character of `HIDDEN` in a text that is not in `allowed`, or ""."""
    found = hidden_characters(text, allowed)
    return next(sign for sign in text if sign in found) if found else ""


def describe_hidden(sign: str) -> str:
    """Return what a character of `HIDDEN` is, for messages."""
    control = ord(sign) < 0xA0 or sign in BIDIRECTIONAL or sign in LINE_ENDS
    return f"{'control' if control else 'invisible'} character U+{ord(sign):04X}"


def _is_hidden(sign: str) -> bool:
    at = bisect_right(HIDDEN, (ord(sign), 0x10FFFF)) - 1
    return at >= 0 and ord(sign) <= HIDDEN[at][1]


def printable(value: object) -> str:
    """Return an untrusted text for a terminal, on one line: what is not shown, and invalid text, as escapes."""
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(escaped(sign) if not sign.isprintable() or _is_hidden(sign) else sign for sign in text)


def without_logins(text: str) -> str:
    """Return a text without the logins of the addresses in it. Takes time in proportion to the text."""
    return UP_TO_AT.sub(_without_login, LOGIN.sub(r"\1", text))


def _without_login(found: re.Match[str]) -> str:
    scheme = SCHEME.search(found[0])
    return found[0][: scheme.end()] if scheme else found[0]


def printable_list(values: Collection[object], limit: int = 20) -> str:
    """Return untrusted texts, such as the names in an archive, on one line: the first `limit` of them, each shortened,
    and how many more there are."""
    texts = (printable(str(value)[:NAME_LENGTH]) for value in islice(values, limit))
    return human_list(texts, limit, total=len(values))


def printable_lines(text: str) -> str:
    """Return a message of several lines for a terminal: what is not shown as escapes, but for line ends and tabs.

    Bytes of a file name that are not UTF-8 (surrogates) remain: a path that is printed is a path to type.
    """
    found = hidden_characters(text, "\n\t")
    return text.translate({ord(sign): escaped(sign) for sign in found if not "\ud800" <= sign <= "\udfff"})


def printable_message(text: str) -> str:
    """Return `printable_lines` of a message, in which a further line that begins as those of envbuild (``error:``) is
    indented: a text that the message quotes may have several lines. An address in it has no login."""
    return printable_lines(OWN_LINE.sub(r"\n  \1", without_logins(text)))


def escaped(text: str | bytes) -> str:
    """Return a text, or a name of a file, in ASCII on one line, for output that must be the same bytes everywhere."""
    return ascii(text if isinstance(text, str) else text.decode("utf-8", "surrogateescape"))[1:-1]
