"""Files that uv reads."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.lock.missing_inputs import InvalidInputError
from envbuild.lock.python.index_logins import IndexLogins
from envbuild.lock.python.uv_inputs import pyproject_text, requirement_lines
from envbuild.lock.python.vendor_index import VendorIndex
from envbuild.net.host_config import PythonIndexes
from envbuild.net.network_settings import NetworkSettings
from envbuild.net.python_index import PackageIndex
from envbuild.net.site import Site
from envbuild.net.transport import Transport

pytestmark = pytest.mark.unit

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=40)
# A login goes into the environment (`IndexLogins`), so a host has no "@".
HOST = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="@[]/?#\\"), max_size=20)
ADDRESS = st.builds("https://{}/{}".format, HOST, TEXT)


@given(
    st.lists(TEXT, max_size=4), ADDRESS, st.sets(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,6}[a-z0-9])?", fullmatch=True))
)
def test_generated_files_are_read_by_uv_as_intended(requirements: list[str], place: str, names: set[str]) -> None:
    """Any text of a recipe or a site remains one string of the file."""
    empty = PackageIndex(Transport(Site(Path("/none"), use_host=False).network()), PythonIndexes())
    left_out = set(sorted(names)[:1])
    vendor = VendorIndex("pip:v", place, frozenset(names), empty)
    text = pyproject_text("venv", requirements, [vendor], dict.fromkeys(left_out, "1"), IndexLogins(NetworkSettings()))
    value = tomllib.loads(text)
    assert value["project"]["dependencies"] == requirements
    assert value["tool"]["uv"]["index"] == [{"name": "vendor-0", "url": place, "explicit": True}]
    assert value["tool"]["uv"]["sources"] == {name: {"index": "vendor-0"} for name in names - left_out}


@pytest.mark.parametrize(
    "line", ["six\n--extra-index-url http://a/${TOKEN}", "-e .", " --pre", "six\x85-e .", "six\r-e ."]
)
def test_a_requirement_is_one_line_and_not_an_option(line: str) -> None:
    """uv reads an option, with variables of the environment, on a line of its own."""
    assert requirement_lines(["six", "numpy>=2; python_version < '3.13'"]).count("\n") == 2
    with pytest.raises(InvalidInputError, match="is not a requirement"):
        requirement_lines(["six", line])
