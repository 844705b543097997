"""The order of Debian versions, compared with dpkg's."""

from __future__ import annotations

import itertools
import shutil
import subprocess

import pytest

from envbuild.lock.debian.version_order import version_key

pytestmark = pytest.mark.unit

# in ascending order
VERSIONS = (
    "0.9", "1.0~~", "1.0~~a", "1.0~", "1.0~rc1-1", "1.0", "1.0-0.1", "1.0-1~bpo12+1", "1.0-1", "1.0-1+b1",
    "1.0-1+deb13u1", "1.0-1.1", "1.0-2", "1.0-10", "1.0a-1", "1.0+dfsg-1", "1.0.1-1", "1.00.2-1", "1.1-1-1", "1.2",
    "1.10", "1:0.1", "2:0",
)  # fmt: skip


def test_versions_have_their_order() -> None:
    assert sorted(set(VERSIONS), key=version_key) == list(VERSIONS)
    assert version_key("0:1.0-0") == version_key("1.0")


def test_numbers_of_any_length_have_an_order() -> None:
    """Of a vendor's archive: Python reads no number of more than 4,300 digits."""
    long = "9" * 5000
    assert version_key("1.0") < version_key(f"1.{long}") < version_key(f"1.1{long}") < version_key(f"1:{long}")
    assert version_key(f"{long}:1") > version_key(f"9:{long}") and version_key("1.007") == version_key("1.7")
    assert version_key("²:1") != version_key("2:1")


def test_the_order_is_dpkgs() -> None:
    if not shutil.which("dpkg"):
        pytest.skip("dpkg is not installed")
    for one, two in itertools.pairwise(VERSIONS):
        assert subprocess.run(["dpkg", "--compare-versions", one, "lt", two], check=False).returncode == 0, (one, two)
