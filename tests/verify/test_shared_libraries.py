"""Libraries that files need: missing ones, and those that may be missing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.verify.declared_contents import Expectations
from envbuild.verify.folder_set import FolderSet
from envbuild.verify.results import Status
from envbuild.verify.shared_libraries import find_excused, library_results, missing_libraries
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.unit


def test_a_product_may_contain_the_library_itself() -> None:
    elves: dict[str, Any] = {
        "/opt/hpcx/a.so": {"missing": ["libx.so"]},
        "/opt/hpcx/deep/libx.so": {"soname": "libx.so"},
        "/opt/ucx/b.so": {"missing": ["libx.so"]},
        "/opt/hpcx/c.so": {"missing": ["libx.so", "liby.so"]},
    }
    missing = missing_libraries(elves, [])
    assert find_excused({"elves": elves, "python": []}, missing) == (set(), {"/opt/hpcx/a.so"})


def test_libraries_of_the_driver_are_not_missing() -> None:
    elves = {"/a": {"missing": ["libcuda.so.1"]}, "/b": {"missing": ["libcuda.so.1", "libz.so"]}, "/c": {}}
    assert missing_libraries(elves, ["libcuda.so*"]) == {"/b": ["libz.so"]}


def test_a_plugin_of_a_wheel_that_nothing_loads_is_optional() -> None:
    site = "/opt/venv/lib/python3.13/site-packages"
    lacking = {"missing": ["libx.so"]}
    elves: dict[str, Any] = {
        f"{site}/a/plugin.so": lacking,
        f"{site}/a/core.cpython-313-x86_64-linux-gnu.so": {"needed": {"liba.so": f"{site}/a/liba.so"}},
        f"{site}/a/liba.so": {**lacking, "preload": {"libb.so": f"{site}/a/libb.so"}},
        f"{site}/a/libb.so": lacking,
        f"{site}/b/ext.abi3.so": lacking,
        "/usr/lib/libz.so": lacking,
    }
    report = {"elves": elves, "python": [{"site": site, "modules": ["a.core", "b.ext"]}]}
    optional, bundled = find_excused(report, missing_libraries(elves, []))
    assert (optional, bundled) == ({f"{site}/a/plugin.so"}, set())


def test_any_number_of_products_and_packages_is_judged_in_linear_time() -> None:
    elves: dict[str, Any] = {f"/opt/a{number}/x.so": {"missing": ["libx.so"]} for number in range(20_000)}
    elves |= {f"/opt/venv/s{number}/x.so": {"missing": ["libx.so"]} for number in range(20_000)}
    python = [{"site": f"/opt/venv/s{number}", "modules": []} for number in range(20_000)]
    report = {"elves": elves, "python": python, "prefixes": [], "cache_error": "", "cache_gone": [], "damaged": {}}
    with ends_within(30):
        found = list(library_results(report, Expectations()))
    assert found[0].status == Status.FAIL and "20000 more" not in found[0].detail


@given(st.lists(st.text("/ab", max_size=6), max_size=8), st.text("/ab", max_size=10))
def test_the_folder_of_a_path(folders: list[str], path: str) -> None:
    found = [f"{folder}/" for folder in folders if path.startswith(f"{folder}/")]
    assert FolderSet(folders).find(path) == min(found, key=len, default="")
