"""The order of Debian versions (Debian policy 5.6.12, "Version")."""

from __future__ import annotations

import re

# A part of a version: text without digits, then a number. A tilde is less than the end, letters are less than all else.
PART = re.compile(r"([^0-9]*)([0-9]*)")
END = 0

Number = tuple[int, str]  # how many digits, and which: Python reads no number of thousands of them
Parts = tuple[tuple[tuple[int, ...], Number], ...]
Key = tuple[Number, Parts, Parts]


def version_key(version: str) -> Key:
    """Return a value with the place of `version` in that order."""
    epoch, colon, rest = version.partition(":")
    if not colon or not (epoch.isascii() and epoch.isdigit()):
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition("-")
    if not dash:
        upstream, revision = rest, "0"
    return _number(epoch), _parts(upstream), _parts(revision)


def _parts(text: str) -> Parts:
    found = [
        ((*map(_weight, letters), END), _number(digits)) for letters, digits in PART.findall(text) if letters or digits
    ]
    return (*found, ((END,), _number("")))


def _number(digits: str) -> Number:
    plain = digits.lstrip("0")
    return len(plain), plain


def _weight(letter: str) -> int:
    if letter == "~":
        return -1
    return ord(letter) if letter.isalpha() else ord(letter) + 256
