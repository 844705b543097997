"""Folders are removed, however deep they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild.core.folder_removal import discard_folder, remove_folder, remove_level_by_level
from envbuild.core.store.store import Store
from envbuild.core.store.usage import size_of
from envbuild.core.userns.removal import remove_tree

pytestmark = pytest.mark.unit
LEVELS = 1050


def deep(top: Path) -> Path:
    """Make a folder that is deeper than Python's stack and longer than a path may be, with files."""
    top.mkdir()
    back = os.open(".", os.O_RDONLY)
    try:
        os.chdir(top)
        for _ in range(LEVELS):
            Path("file").touch()
            Path("folder").mkdir()
            os.chdir("folder")
    finally:
        os.fchdir(back)
        os.close(back)
    (top / "link").symlink_to("/")
    os.mkfifo(os.fsencode(top) + b"/\xff")
    return top


@pytest.mark.slow_unit
@pytest.mark.parametrize("remove", [remove_folder, remove_level_by_level, remove_tree])
def test_a_deep_folder_is_removed(tmp_path: Path, remove: object) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").touch()
    top = deep(tmp_path / "top")
    (top / "out").symlink_to("../kept")
    remove(top)  # type: ignore[operator]
    assert [path.name for path in tmp_path.iterdir()] == ["kept"] and (tmp_path / "kept/file").exists()


@pytest.mark.slow_unit
def test_the_folder_of_a_process_is_removed(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    with store.workdir() as work:
        deep(work / "upper")
    assert not [*(store.root / "tmp").iterdir()]


@pytest.mark.slow_unit
def test_the_size_of_a_deep_folder_passes_over_what_cannot_be_read(tmp_path: Path) -> None:
    top = deep(tmp_path / "top")
    try:
        assert size_of(top) > 0
    finally:
        discard_folder(top)


def test_a_missing_folder_and_a_file_are_left_alone(tmp_path: Path) -> None:
    discard_folder(tmp_path / "none")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(".")
    discard_folder(tmp_path / "link")
    discard_folder(tmp_path / "file")
    assert {path.name for path in tmp_path.iterdir()} == {"file", "link"}
