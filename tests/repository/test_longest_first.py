"""The order in which workers take files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.longest_first import FILES, FOLDERS, ORDER, place, unit_of_work

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]


def test_files_and_folders_of_the_order_exist() -> None:
    assert [name for name in FILES if not (ROOT / name).is_file()] == []
    assert [name for name in FOLDERS if not (ROOT / name).is_dir()] == []


def test_the_tests_of_a_file_are_one_unit_and_those_of_a_folder_of_the_order_too() -> None:
    assert unit_of_work("tests/engine/test_box.py::test_a[x::y]") == "tests/engine/test_box.py"
    assert {unit_of_work(f"tests/images/test_{name}.py::test_x") for name in "ab"} == {"tests/images/"}


def test_what_is_not_in_the_order_comes_last() -> None:
    assert [place(name) for name in ORDER] == [*range(len(ORDER))]
    assert place("tests/engine/test_box.py") == len(ORDER)
