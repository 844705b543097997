"""Texts of amounts and numbers of things."""

from __future__ import annotations

import pytest

from envbuild.core.text import amount, counted, duration, passed

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


@pytest.mark.parametrize(
    "seconds,text",
    [
        (0.4, "0 s"),
        (89, "89 s"),
        (90, "2 min"),
        (3569, "59 min"),
        (3570, "1 h 0 min"),
        (7500, "2 h 5 min"),
        (36000, "10 h 0 min"),
    ],
)
def test_times(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    "done,total,seconds,text",
    [
        (2_000_000, 8_000_000, 2, "2.0 MB of 8.0 MB, 1.0 MB/s, 6 s left"),
        (2_000_000, 8_000_000, 1, "2.0 MB of 8.0 MB, 2.0 MB/s"),
        (2_000_000, 0, 2, "2.0 MB, 1.0 MB/s"),
        (2_000_000, 2_000_000, 2, "2.0 MB of 2.0 MB, 1.0 MB/s"),
        (0, 2_000_000, 5, "0 B of 2.0 MB, 0 B/s"),
        (10, 0, 0, "10 B, 10.0 kB/s"),
    ],
)
def test_how_far_a_transfer_is(done: int, total: int, seconds: float, text: str) -> None:
    assert passed(done, total, seconds) == text
