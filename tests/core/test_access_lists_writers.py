"""Access control lists: other users who may write what the mode shows as the group's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild.core.access_lists import Writer, named_writers
from envbuild.core.ownership import find_intrusion
from tests.support.access_lists import GROUP, USER, set_list

pytestmark = pytest.mark.unit
STRANGER = 12345


def test_who_may_write_by_a_list(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.touch()
    assert list(named_writers(str(file))) == []
    set_list(file, (USER, 6, STRANGER), (GROUP, 4, 77), (GROUP, 2, 78))
    assert list(named_writers(str(file))) == [Writer(False, STRANGER), Writer(True, 78)]
    set_list(file, (USER, 6, STRANGER), mask=4)
    assert list(named_writers(str(file))) == []


def test_another_user_of_a_list_is_an_intrusion(tmp_path: Path) -> None:
    """The mode is 0664, of the caller's own group."""
    file = tmp_path / "key"
    file.touch()
    set_list(file, (USER, 6, STRANGER))
    users, own = frozenset((0, os.geteuid())), frozenset((file.stat().st_gid,))
    assert file.stat().st_mode & 0o020
    found = find_intrusion(str(file), users, lambda: own)
    assert found is not None
    assert found.reason.startswith(f"can be written by the user {STRANGER}, by its access list (owner ")
    assert find_intrusion(str(file), users | {STRANGER}, lambda: own) is None
