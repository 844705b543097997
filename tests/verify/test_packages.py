"""Lists of packages compared: versions as PEP 440 has them, whole or in part."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.verify.packages import differences, is_same_version

pytestmark = pytest.mark.unit
versions = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["1", "2"]))


@given(versions, versions)
def test_no_differences_means_equal(declared: dict[str, str], installed: dict[str, str]) -> None:
    assert (not differences(declared, installed, complete=True)) == (declared == installed)
    subset = all(installed.get(name) == version for name, version in declared.items())
    assert (not differences(declared, installed, complete=False)) == subset


def test_versions_are_compared_by_pep_440() -> None:
    assert is_same_version("1.0", "1.0.0")
    assert is_same_version("2.8.3.post2", "2.8.3-post2")
    assert not is_same_version("2.15.0", "2.15.0+cu132")
    assert not is_same_version("1.0", "no version")
    assert not is_same_version("1" * 5000, "1")
