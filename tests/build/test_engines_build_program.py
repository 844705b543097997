"""A build by a program with an engine of its own: its output."""

from __future__ import annotations

import io

import pytest

from envbuild.build.engines.build_program import LONGEST, pieces

pytestmark = pytest.mark.unit


def test_a_long_line_is_read_in_pieces() -> None:
    """A step printed one of 2 GB, and envbuild took 6 GB."""
    text = b"a" * (3 * LONGEST) + b"\nlast\n"
    found = list(pieces(io.BytesIO(text)))
    assert b"".join(found) == text and max(map(len, found)) == LONGEST
    assert list(pieces(io.BytesIO(b"one\n\ntwo"))) == [b"one\n", b"\n", b"two"]
