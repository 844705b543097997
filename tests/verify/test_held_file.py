"""The file that is verified: the file itself, or a copy where another user could change what is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild.core.digest import file_digest
from envbuild.core.errors import VerifyError
from envbuild.verify.held_file import hold_file
from tests.support.foreign_images import workspace

pytestmark = pytest.mark.unit


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a file in a folder of this user alone."""
    path = tmp_path / "way/folder/x.sqsh"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"good")
    return path


def test_a_file_that_nobody_else_can_change_is_not_copied(place: Path, tmp_path: Path) -> None:
    with hold_file(place, workspace(tmp_path / "store")) as held:
        assert held.content == place and held.sha256 == file_digest(place)
    with hold_file(place, workspace(tmp_path / "store"), "a" * 64) as held:
        assert held.sha256 == "a" * 64  # this process wrote it
    with pytest.raises(VerifyError, match="replaced or changed"), hold_file(place, workspace(tmp_path / "store")):
        place.write_bytes(b"evil")


@pytest.mark.parametrize("way", ["folder", "folder above", "link", "file", "store"])
def test_what_another_user_exchanges_and_puts_back_is_not_read(way: str, place: Path, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root is in no group of its own")
    opened, home = place, workspace(tmp_path / "store")
    if way == "link":
        (tmp_path / "links").mkdir()
        opened = tmp_path / "links/link.sqsh"
        opened.symlink_to(place)
        opened.parent.chmod(0o2775)
    elif way == "store":
        home.store.root.chmod(0o3775)
        home = workspace(home.store.root)
        opened = home.store.root / "artifacts/x.sqsh"
        place.rename(opened)
        opened.parent.chmod(0o2775)
    else:
        {"folder": place.parent, "folder above": place.parents[1], "file": place}[way].chmod(0o775)
    with hold_file(opened, home, "a" * 64) as held:
        assert held.path == opened and held.content.is_relative_to(home.store.tmp)
        assert held.content.stat().st_mode & 0o777 == 0o600
        opened.resolve().write_bytes(b"evil")
        assert held.content.read_bytes() == b"good" and held.sha256 == file_digest(held.content)
    assert list(home.store.tmp.iterdir()) == []


def test_an_own_store_below_a_folder_of_a_group_is_not_copied(tmp_path: Path) -> None:
    """Who can replace the store is trusted."""
    (tmp_path / "team").mkdir()
    (tmp_path / "team").chmod(0o2775)
    home = workspace(tmp_path / "team/store")
    path = home.store.root / "artifacts/x.sqsh"
    path.write_bytes(b"x")
    with hold_file(path, home) as held:
        assert held.content == path
