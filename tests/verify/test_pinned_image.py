"""The file that is verified: the file itself, or a copy where another user could change what is read."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from envbuild.core.digest import file_digest
from envbuild.core.errors import EngineError, VerifyError
from envbuild.core.regular_file import open_regular
from envbuild.verify import pinned_image
from envbuild.verify.pinned_image import find_writer, pin_image
from tests.support.foreign_images import workspace

pytestmark = pytest.mark.unit


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a file in a folder of this user alone."""
    path = tmp_path / "way/folder/x.sqsh"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"good")
    return path


def test_a_file_of_this_user_alone_is_not_copied(place: Path, tmp_path: Path) -> None:
    with pin_image(place, workspace(tmp_path / "store")) as pinned:
        assert pinned.content == place and pinned.sha256 == file_digest(place)
    with pin_image(place, workspace(tmp_path / "store"), "a" * 64) as pinned:
        assert pinned.sha256 == "a" * 64  # this process wrote it
    with pytest.raises(VerifyError, match="replaced or changed"), pin_image(place, workspace(tmp_path / "store")):
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
    with pin_image(opened, home, "a" * 64) as pinned:
        assert pinned.path == opened and pinned.content.is_relative_to(home.store.tmp)
        assert pinned.content.stat().st_mode & 0o777 == 0o600
        opened.resolve().write_bytes(b"evil")
        assert pinned.content.read_bytes() == b"good" and pinned.sha256 == file_digest(pinned.content)
    assert list(home.store.tmp.iterdir()) == []


def test_a_copy_has_any_name(place: Path, tmp_path: Path) -> None:
    """Also that of a file which marks the work folder."""
    if os.geteuid():
        pytest.skip("only root is in no group of its own")
    path = place.rename(place.with_name("alive"))
    path.chmod(0o775)
    with pin_image(path, workspace(tmp_path / "store")) as pinned:
        assert pinned.content.name == "alive" and pinned.content.read_bytes() == b"good"


def test_an_own_store_below_a_folder_of_a_group_is_not_copied(tmp_path: Path) -> None:
    """Who can replace the store is trusted."""
    (tmp_path / "team").mkdir()
    (tmp_path / "team").chmod(0o2775)
    home = workspace(tmp_path / "team/store")
    path = home.store.root / "artifacts/x.sqsh"
    path.write_bytes(b"x")
    with pin_image(path, home) as pinned:
        assert pinned.content == path


def test_a_place_that_changes_while_it_is_judged_is_not_one_s_own(place: Path, tmp_path: Path) -> None:
    """A folder is renamed away in the moment of the judgement, or another file has the name."""
    store, moved = workspace(tmp_path / "store").store, place.parent.with_name("moved")
    with open_regular(place) as opened:
        assert find_writer(place, place, opened.fileno(), store) is None
        place.parent.rename(moved)
        found = find_writer(place, place, opened.fileno(), store)
        assert found and found.reason == "is missing for a moment"
        place.parent.mkdir()
        place.write_bytes(b"good")
        found = find_writer(place, place, opened.fileno(), store)
        assert found and found.reason == "was exchanged at this moment"


def test_the_copy_of_a_file_with_holes_takes_no_more_room(place: Path, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root is in no group of its own")
    with place.open("r+b") as file:
        file.seek(200 << 20)
        file.write(b"end")
    place.chmod(0o664)
    with pin_image(place, workspace(tmp_path / "store")) as pinned:
        assert pinned.content != place and pinned.sha256 == file_digest(place)
        assert pinned.content.stat().st_size == place.stat().st_size
        assert pinned.content.stat().st_blocks * 512 < 1 << 20


def test_a_copy_for_which_there_is_no_room_is_not_begun(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid():
        pytest.skip("only root is in no group of its own")
    place.chmod(0o664)
    monkeypatch.setattr(pinned_image.shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(EngineError, match="has 100 B free"), pin_image(place, workspace(tmp_path / "store")):
        raise AssertionError("it was copied")
