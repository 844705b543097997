"""A store that a group shares: its entries have the mode of their folder, with any umask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.core.store import permissions

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def narrow() -> Iterator[None]:
    """Set an umask that excludes all other users."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o2770)
    return folder


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize(
    ("folder", "found"), [(0o2770, 0o2770), (0o775, 0o775), (0o755, 0), (0o1777, 0), (0o777, 0), (0o702, 0)]
)
def test_a_group_shares_a_folder_that_it_may_write_and_others_may_not(folder: int, found: int, tmp_path: Path) -> None:
    tmp_path.chmod(folder)
    assert permissions.is_shared(tmp_path) == found
    tmp_path.chmod(0o700)


def test_folders_have_the_mode_of_a_shared_parent(shared: Path, tmp_path: Path) -> None:
    permissions.make_shared_folder(shared / "new")
    permissions.make_shared_folder(shared / "new" / "deep")
    permissions.make_shared_folder(tmp_path / "own")
    assert [mode(path) for path in (shared / "new", shared / "new/deep", tmp_path / "own")] == [0o2770, 0o2770, 0o700]
    (shared / "new").chmod(0o700)
    permissions.make_shared_folder(shared / "new")  # exists: its owner's choice remains
    assert mode(shared / "new") == 0o700


def test_the_group_may_lock_and_touch_a_file_of_a_shared_folder(shared: Path, tmp_path: Path) -> None:
    for folder, found in ((shared, 0o660), (tmp_path, 0o600)):
        with permissions.open_lock_file(folder / "lock"):
            assert mode(folder / "lock") == found
        (tmp_path / "made").write_text("x")
        permissions.move_into_store(tmp_path / "made", folder / "moved")
        assert mode(folder / "moved") == found
        assert not (tmp_path / "made").exists()


def test_a_lock_file_of_another_user_can_be_locked_and_is_left_as_it_is(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shared / "lock").touch()
    (shared / "lock").chmod(0o444)
    opened, real = [], os.open

    def refuse_writing(path: Path, flags: int, *more: int) -> int:
        opened.append(flags & os.O_ACCMODE)
        if flags & os.O_ACCMODE == os.O_RDWR and not flags & os.O_EXCL:
            raise PermissionError
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", refuse_writing)
    with permissions.open_lock_file(shared / "lock"):
        assert opened == [os.O_RDWR, os.O_RDWR, os.O_RDONLY]
    assert mode(shared / "lock") == 0o444


def test_what_only_its_owner_may_change_is_used_as_it_is(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shared / "file"
    file.touch()
    os.utime(file, (0, 0))
    permissions.record_use(file)
    assert file.stat().st_mtime > 0

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(Path, "chmod", refuse)
    permissions.record_use(file)
    permissions.share_file(file)
