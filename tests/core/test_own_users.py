"""Ids of the user namespace of root's sandbox: the numbers of the machine, or of the container."""

from __future__ import annotations

import pytest

from envbuild.core.userns.own_users import same_numbers

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("uid_map", "expected"),
    [
        ("         0          0 4294967295\n", "0 0 4294967295\n"),
        ("0 200000 65536\n", "0 0 65536\n"),
        ("0 1000 1\n1 100000 65536\n", "0 0 1\n1 1 65536\n"),
    ],
)
def test_ids_have_the_numbers_that_they_have_outside(uid_map: str, expected: str) -> None:
    assert same_numbers(uid_map) == expected
