"""Outputs of programs that end early: a parser must not take a part of one for the whole."""

from __future__ import annotations

from collections.abc import Callable


def check_truncation(text: str, is_whole: Callable[[str], bool], end: str = "") -> None:
    """Check that a text is whole, and is not whole when it is truncated at any line.

    end: what the line that completes it contains, if later lines announce nothing.
    """
    lines = text.splitlines(keepends=True)
    last = next((number for number, line in enumerate(lines, 1) if end and end in line), len(lines))
    assert is_whole(text)
    assert [number for number in range(last) if is_whole("".join(lines[:number]))] == []
