"""Numbers in headers of HTTP answers."""

from __future__ import annotations

DIGITS = 18  # more than any length in bytes or time in seconds has


def header_number(text: str) -> int | None:
    """Return the number that a header consists of (RFC 9110, 8.6: digits of ASCII); None if it is anything else.

    `str.isdigit` is true of signs such as ``²``, which `int` refuses, as it refuses thousands of digits.
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= DIGITS else None
