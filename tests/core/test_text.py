"""Texts for users: lists of limited length, and escaped control characters."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest

from envbuild.core.text import (
    HIDDEN,
    describe_hidden,
    escaped,
    first_hidden,
    flow,
    human_list,
    printable,
    printable_lines,
    printable_message,
    table,
    without_logins,
)
from tests.support.time_limit import ends_within

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


def test_characters_that_reorder_a_line_are_escaped() -> None:
    assert printable("\u202epoh\u202c \u3164 \u034f") == "\\u202epoh\\u202c \\u3164 \\u034f"
    lines = printable_lines("error: a\tb\n\u2066c\u00a0d\x1b[31m\r\u200b \udcff \U000e0041 ä⚠️ 構")
    assert lines == "error: a\tb\n\\u2066c\u00a0d\\x1b[31m\\r\\u200b \udcff \\U000e0041 ä⚠️ 構"


def test_every_format_and_control_character_is_hidden() -> None:
    """But for signs of Arabic, Syriac, Kaithi, Egyptian and shorthand scripts that are drawn."""
    ranges = [range(first, last + 1) for first, last in HIDDEN]
    assert ranges == sorted(ranges, key=lambda known: known.start)
    drawn = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, *range(0x13430, 0x13440)}
    for number in range(0x110000):
        if unicodedata.category(chr(number)) in ("Cc", "Cf", "Cs", "Zl", "Zp") and number not in drawn:
            assert any(number in known for known in ranges), hex(number)


@pytest.mark.parametrize(
    ("text", "allowed", "first"),
    [
        ("plain é 構 ⚠️ \u00a0", "", ""),
        ("a\tb\n", "\t\n", ""),
        ("a\nb\x07", "\n", "\x07"),
        ("b\u202ea\x07", "", "\u202e"),
        ("\u200d", "", "\u200d"),
        ("\U000e0fff\U000e1000", "", "\U000e0fff"),
    ],
)
def test_the_first_hidden_character_is_found(text: str, allowed: str, first: str) -> None:
    assert first_hidden(text, allowed) == first


def test_hidden_characters_are_named_by_kind() -> None:
    kinds = [describe_hidden(sign) for sign in "\x07\u202e\u2028\xad"]
    assert kinds == [
        "control character U+0007",
        "control character U+202E",
        "control character U+2028",
        "invisible character U+00AD",
    ]


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


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("at https://bob:hush@h/x@v1", "at https://h/x@v1"),
        ("at https://bob:hu@sh@h/x", "at https://h/x"),
        ("https:/bob:hush@h/x", "https:/h/x"),
        ("HTTPS:/bob:hush@h/x", "HTTPS:/h/x"),
        *((f"at {start}AWS:{'hush' * 1200}@h/x", f"at {start}h/x") for start in ("https://", "http:/", "//", "https:")),
        ("docker:AWS:hush@h/x:1", "docker:h/x:1"),
        ("docker:app@sha256:1", "docker:app@sha256:1"),
        ("https:bob:hush@h/x", "https:h/x"),
        ("'https://bob:hush hush@h/x@v1' has", "'https://h/x@v1' has"),
        ("at //bob:hush@h/x", "at //h/x"),
        ("docker://bob:hush@app@sha256:1", "docker://app@sha256:1"),
        ("docker://app@sha256:1", "docker://app@sha256:1"),
        ("http://h:5000 did not answer; see a@b", "http://h:5000 did not answer; see a@b"),
        ("https: see a@b", "https: see a@b"),
        ("https://h.example: refused; ask a@b", "https://h.example: refused; ask a@b"),
        ("https://h:443: bad; mail a@b", "https://h:443: bad; mail a@b"),
        ("<//bob:hush@h>", "<//h>"),
        ("show a//b@c.sqsh, /srv//img@v2.sqsh", "show a//b@c.sqsh, /srv//img@v2.sqsh"),
        ("docker://a/b@sha256:1", "docker://a/b@sha256:1"),
        ("--bind /nowhere:/mnt@x", "--bind /nowhere:/mnt@x"),
        ("oci:/srv/images@sha256:1", "oci:/srv/images@sha256:1"),
    ],
)
def test_a_message_has_no_login(text: str, printed: str) -> None:
    assert printable_message(text) == printed


LONG = [f"{'https:' * 130}@sha256:", f"{'docker:' * 800}@sha256:", "https:@sha256:", "https:a:b ", "://a:b b"]


@pytest.mark.parametrize("text", [*LONG, "(https:", "docker:", "http:", "://a:", "://", "a@", "//a:b ", "@", "x"])
def test_the_time_for_logins_is_in_proportion_to_the_text(text: str) -> None:
    """A file of another user, or what a program prints of one, may have megabytes."""
    with ends_within(10):
        without_logins(text * (1_000_000 // len(text)))
