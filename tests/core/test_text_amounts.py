"""Texts of amounts and numbers of things."""

from __future__ import annotations

import pytest

from envbuild.core.text import amount, counted

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "number,what,text",
    [
        (0, "file", "0 files"),
        (1, "file", "1 file"),
        (2, "Debian package", "2 Debian packages"),
        (1, "part of the start", "1 part of the start"),
        (3, "part of the start", "3 parts of the start"),
    ],
)
def test_numbers_of_things(number: int, what: str, text: str) -> None:
    assert counted(number, what) == text


@pytest.mark.parametrize("size,text", [(999, "999 B"), (1000, "1.0 kB"), (1.44e9, "1.4 GB"), (2e13, "20.0 TB")])
def test_amounts(size: float, text: str) -> None:
    assert amount(size) == text
