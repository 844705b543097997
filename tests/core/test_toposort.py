"""Order of recipes: each after those that it names, ties by name, and a cycle that can be shown."""

from __future__ import annotations

import pytest

from envbuild.core.toposort import sort_topologically

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("after", "order", "cycle"),
    [
        ({}, (), ()),
        ({"c": [], "a": [], "b": []}, ("a", "b", "c"), ()),
        ({"a": ["c"], "b": [], "c": ["b"]}, ("b", "c", "a"), ()),
        ({"a": ["none"], "b": ["a", "a"]}, ("a", "b"), ()),
        ({"d": [], "b": ["d"], "c": ["d"], "a": ["b", "c"]}, ("d", "b", "c", "a"), ()),
        ({"a": ["a"], "b": []}, ("b",), ("a", "a")),
        ({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["c"], "e": []}, ("e",), ("b", "c", "b")),
    ],
)
def test_order_and_cycle(after: dict[str, list[str]], order: tuple[str, ...], cycle: tuple[str, ...]) -> None:
    assert sort_topologically(after) == (order, cycle)
