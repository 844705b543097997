"""Results of locking in the store: returned for the same key alone, and read as absent when they are anything else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.core.store.gc import unneeded_entries
from envbuild.core.store.store import Store
from envbuild.core.store.usage import usage
from envbuild.lock.stored_results import FOLDER, StoredResults

pytestmark = pytest.mark.unit
KEY = {"request": ["a", 1], "state": "x"}


@pytest.fixture
def results(store: Store) -> StoredResults:
    found = StoredResults(store)
    found.write("python", KEY, {"demo": ["1.0", ""]})
    return found


def test_a_result_is_found_by_its_kind_and_whole_key(results: StoredResults) -> None:
    assert results.read("python", {"state": "x", "request": ["a", 1]}) == {"demo": ["1.0", ""]}
    assert results.read("debian", KEY) is None
    assert results.read("python", {**KEY, "state": "y"}) is None
    results.forget("python", KEY)
    assert results.read("python", KEY) is None


def test_another_version_of_the_code_has_no_results(results: StoredResults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envbuild.lock.stored_results.code_digest", lambda: "another")
    assert results.read("python", KEY) is None


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def change(path: Path) -> None:
    path.write_text(path.read_text().replace("1.0", "9.9"))


def unseal(path: Path) -> None:
    value = json.loads(path.read_text())
    path.write_text(json.dumps({"result": value["result"]}))


def list_it(path: Path) -> None:
    path.write_text("[]")


def link(path: Path) -> None:
    path.rename(path.with_name("other"))
    path.symlink_to("other")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def close(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [truncate, change, unseal, list_it, link, pipe, close])
def test_a_damaged_result_is_absent(results: StoredResults, damage: Callable[[Path], None]) -> None:
    damage(results.path("python", KEY))
    assert results.read("python", KEY) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
def test_the_result_of_another_user_is_absent(results: StoredResults) -> None:
    os.chown(results.path("python", KEY), 4321, -1)
    assert results.read("python", KEY) is None


def test_the_folder_is_of_one_user_in_the_store_of_a_group(tmp_path: Path) -> None:
    root = tmp_path / "group"
    root.mkdir()
    root.chmod(0o3775)
    store = Store.open(root)
    results = StoredResults(store)
    results.write("python", KEY, [1])
    folder = results.path("python", KEY).parent
    assert folder == store.own / FOLDER != root / FOLDER
    assert folder.stat().st_mode & 0o777 == 0o700 and results.read("python", KEY) == [1]


def test_a_store_that_cannot_be_written_does_not_fail(tmp_path: Path, store: Store) -> None:
    (store.root / FOLDER).write_text("in the way")
    StoredResults(store).write("python", KEY, [1])
    assert StoredResults(store).read("python", KEY) is None


def test_the_store_counts_and_removes_results(results: StoredResults) -> None:
    assert usage(results.store)[FOLDER] > 0
    path = results.path("python", KEY)
    assert path not in set(unneeded_entries(results.store, everything=False))
    assert path in set(unneeded_entries(results.store, everything=True))
