"""JSON that other users wrote: any fault of it is one kind of error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.core.json_text import DEEPEST, json_value, record_value
from envbuild.core.store.json_files import read_sealed, write_sealed

pytestmark = pytest.mark.unit

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)  # fmt: skip


@given(VALUES)
def test_values_are_read_as_they_were_written(value: object) -> None:
    text = json.dumps(value)
    assert json_value(text) == record_value(text) == value


@pytest.mark.parametrize("number", [str(10**400), "1e999", "-1e999", "NaN", "Infinity", str(1 << 63), "9" * 5000])
def test_a_record_has_no_number_that_is_too_large(number: str) -> None:
    with pytest.raises(ValueError, match="too large"):
        record_value(f'{{"seconds": [{number}]}}')


@pytest.mark.parametrize("read", [json_value, record_value])
def test_nested_lists_are_a_fault(read: object) -> None:
    with pytest.raises(ValueError):
        read("[" * 200_000)  # type: ignore[operator]


@pytest.mark.parametrize("read", [json_value, record_value])
@pytest.mark.parametrize(("start", "end"), [("[", "]"), ('{"a":', "}")])
def test_the_depth_of_a_value_is_limited(read: Callable[[str], object], start: str, end: str) -> None:
    """An answer has as many blanks on a line as its value is deep: 2 MB became 900."""
    assert read(f"{start * DEEPEST}1{end * DEEPEST}") is not None
    for depth in (DEEPEST + 1, 900):
        with pytest.raises(ValueError, match="more than 32 levels"):
            read(f"{start * depth}1{end * depth}")


@pytest.mark.parametrize("text", ["NaN", "[-Infinity]", "[1e999]"])
def test_what_json_does_not_have_is_a_fault(text: str) -> None:
    with pytest.raises(ValueError, match="not finite"):
        json_value(text)


def test_a_sealed_record_with_such_a_number_is_none(tmp_path: Path) -> None:
    write_sealed(tmp_path / "record", {"seconds": 10**400})
    assert read_sealed(tmp_path / "record") is None


@pytest.mark.parametrize("text", ["[" + '{"":0},' * 1_100_000 + "0]", "[" + "0," * 5_100_000 + "0]", "[" * 1_100_000])
def test_a_small_text_does_not_take_much_memory(text: str) -> None:
    for content in (text, text.encode()):
        with pytest.raises(ValueError, match="too many values"):
            json_value(content)
