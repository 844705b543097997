"""Texts for users: lists of limited length, and escaped control characters."""

from __future__ import annotations

from typing import Any

import pytest

from envbuild.core.text import escaped, flow, human_list, printable, table

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


def test_a_table_has_columns_of_equal_width_and_no_blanks_at_the_end() -> None:
    assert table(["name", "n"], [["a", 10], ["longer", ""]]) == "name    n\na       10\nlonger"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (False, "false"),
        (12, "12"),
        ("a/b+c", "a/b+c"),
        ("true", '"true"'),
        ("null", '"null"'),
        ("3.10", '"3.10"'),
        ("a b", '"a b"'),
        ("", '""'),
        (["a", 1, ["é x"]], '[a, 1, ["é x"]]'),
        ({"a": True, "b": {"c": []}}, "{a: true, b: {c: []}}"),
        (None, "None"),
    ],
)
def test_values_as_a_spec_has_them(value: Any, text: str) -> None:
    assert flow(value) == text
