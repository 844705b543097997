"""A store that a group shares, and users beside it (fixtures: imported by conftest.py)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envbuild.core.store.store import Store
from tests.support.as_user import open_folder, run_as

GROUP, ONE, TWO, OUTSIDE = 50_000, 50_001, 50_002, 50_003


def as_member(uid: int, function: Callable[[], object]) -> object:
    return run_as(uid, uid, (GROUP,), function)


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as path:
        yield path


@pytest.fixture
def shared(folder: Path) -> Path:
    """Return a store of root that a group shares, as docs/sites.md makes it."""
    path = folder / "store"
    path.mkdir()
    shutil.chown(path, group=GROUP)
    path.chmod(0o3775)
    Store.open(path)
    return path


@pytest.fixture
def home(folder: Path) -> Path:
    """Return a folder of root with a file and a folder, which no other user can enter."""
    path = folder / "home"
    (path / "folder").mkdir(parents=True, mode=0o700)
    (path / "file").write_text("mine")
    path.chmod(0o700)
    return path
