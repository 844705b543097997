"""Trees of commits as a server sends them: entries, and damage."""

from __future__ import annotations

from typing import Any

import pytest

from envbuild.lock.git import tree
from envbuild.net.failures import RefusedError

pytestmark = pytest.mark.unit

CHILD = bytes(range(20))


def entry(mode: bytes, name: bytes, child: bytes = CHILD) -> bytes:
    return mode + b" " + name + b"\0" + child


def parsed(raw: bytes) -> list[Any]:
    return list(tree._parse_tree(raw, "abc"))


def test_entries_of_a_tree() -> None:
    raw = entry(b"100755", b"run me") + entry(b"40000", b"src", bytes(20))
    assert parsed(raw) == [(0o100755, b"run me", CHILD.hex()), (0o40000, b"src", "00" * 20)]
    assert parsed(b"") == []


@pytest.mark.parametrize(
    "raw",
    [
        entry(b"100644", b"a")[:-1],
        b"100644 a",
        b"100644",
        entry(b"x", b"a"),
        entry(b"", b"a"),
        entry(b"100949", b"a"),
        entry(b"7" * 4000, b"a"),
        entry(b"100644", b"a") + b"1",
    ],
)
def test_a_damaged_tree(raw: bytes) -> None:
    with pytest.raises(RefusedError, match="abc"):
        parsed(raw)
