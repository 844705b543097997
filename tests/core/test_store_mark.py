"""A store is made in a new or empty folder only: its cleaning removes entries by their place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild.core.errors import EngineError
from envbuild.core.store.mark import MARK, SHARED, mark_shared
from envbuild.core.store.store import Store
from envbuild.core.store.store_folders import FOLDERS

pytestmark = pytest.mark.unit


def content(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): path.stat().st_mode for path in (root, *root.rglob("*"))}


@pytest.mark.parametrize("name", ["tmp/thesis/chapter1", "images/holiday.jpg", "control/c", ".profile", "blobs/x"])
def test_a_folder_with_other_content_is_refused_and_not_changed(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("mine")
    (tmp_path / name).parent.chmod(0o755)
    before = content(tmp_path)
    with pytest.raises(EngineError) as error:
        Store.open(tmp_path)
    assert str(tmp_path) in error.value.message and f"ENVBUILD_STORE={tmp_path}/" in error.value.hint
    assert content(tmp_path) == before


@pytest.mark.parametrize("beside", [(), ("lost+found",), ("matrix",)], ids=["new", "file-system", "facts"])
def test_a_new_folder_becomes_a_store_and_remains_one(tmp_path: Path, beside: tuple[str, ...]) -> None:
    root = tmp_path / "a" / "b"
    for name in beside:
        (root / name).mkdir(parents=True)
    Store.open(root)
    assert (root / MARK).is_file()
    (root / "notes").write_text("added later")
    for name in ("units", "packs"):
        (root / name).rmdir()
    Store.open(root)
    assert all((root / name).is_dir() for name in FOLDERS)


def test_a_store_from_before_the_mark_gets_one(tmp_path: Path) -> None:
    Store.open(tmp_path)
    (tmp_path / MARK).unlink()
    (tmp_path / "anything").touch()
    Store.open(tmp_path)
    assert (tmp_path / MARK).is_file()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_member_who_makes_the_mark_again_and_again_does_not_own_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the writing, too."""
    left, rename = [3], Path.rename

    def race(path: Path, target: Path) -> Path:
        moved = rename(path, target)
        if left[0]:
            left[0] -= 1
            path.touch()
            os.chown(path, 50_001, -1)
        return moved

    monkeypatch.setattr(Path, "rename", race)
    (tmp_path / SHARED).touch()
    os.chown(tmp_path / SHARED, 50_001, -1)
    mark_shared(tmp_path)
    assert (tmp_path / SHARED).stat().st_uid == os.geteuid() and left == [0]
    left[0] = 1000
    os.chown(tmp_path / SHARED, 50_001, -1)
    with pytest.raises(FileExistsError, match="again and again"):
        mark_shared(tmp_path)
