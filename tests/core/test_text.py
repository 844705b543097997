"""Texts for users: lists of limited length, and escaped control characters."""

from __future__ import annotations

import pytest

from envbuild.core.text import escaped, human_list, printable

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("items", "total", "separator", "text"),
    [
        ([], 0, ", ", ""),
        (["a", "b"], 0, ", ", "a, b"),
        (["a", "b", "c", "d"], 0, ", ", "a, b and 2 more"),
        (["a", "b"], 5, ", ", "a, b and 3 more"),
        (["a"], 5, ", ", "a and 4 more"),
        (["a", "b", "c"], 0, "; ", "a; b; and 1 more"),
    ],
)
def test_human_list(items: list[str], total: int, separator: str, text: str) -> None:
    assert human_list(items, 2, total=total, separator=separator) == text


def test_control_characters_are_escaped() -> None:
    assert printable("ü\x1b[31m\n\udc80") == "ü\\x1b[31m\\n\\udc80"
    assert escaped("ü\n") == "\\xfc\\n"
    assert escaped(b"\xc3\xbc\xff") == "\\xfc\\udcff"
