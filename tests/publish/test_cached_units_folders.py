"""Caches of units in folders: whose folder is believed, and who may read and write in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.store.store import Store
from tests.support.as_user import open_folder, run_as
from tests.support.small_plan import small_plan
from tests.support.unit_caches import IMAGE, built_store, fill, opened, send, setting

pytestmark = pytest.mark.registry

KEYS = small_plan().keys()
Place = Callable[[], "str | Path"]


def test_another_user_reads_a_folder() -> None:
    with open_folder() as folder:
        store, records = built_store(folder / "a")
        send(store, records, folder / "cache")
        (folder / "b").mkdir()
        shutil.chown(folder / "b", 12345, 12345)
        names = run_as(12345, 12345, (), lambda: sorted(fill(Store.open(folder / "b"), folder / "cache")[0]))
        assert names == sorted(IMAGE)
        text = run_as(12345, 12345, (), lambda: send(Store(folder / "b"), records[:1], folder / "cache"))
        assert text == []  # it is present
        (folder / "cache/units" / records[0].key).unlink()
        (line,) = run_as(12345, 12345, (), lambda: send(Store(folder / "b"), records[:1], folder / "cache"))
        assert "it cannot be written" in line


def test_a_folder_that_every_user_may_write_is_not_believed(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    store, records = built_store(tmp_path / "a")
    send(store, records, cache)
    for path in (cache, cache / "units", cache / "blobs/sha256"):
        path.chmod(0o777)
        taken, lines = fill(Store.open(tmp_path / "b"), cache)
        assert taken == {} and len(lines) == 1 and f"chmod o-w {path}" in lines[0]
        assert "chmod o-w" in send(store, records, cache)[0]
        path.chmod(0o755)


def give_away(path: Path) -> Path:
    for folder, _, names in os.walk(path):
        for name in ("", *names):
            os.chown(Path(folder, name), 12345, 12345)
    return path


def open_link(at: Path, cache: Path) -> Path:
    (at / "open").mkdir()
    (at / "open").chmod(0o777)
    (at / "open/cache").symlink_to(cache)
    return at / "open/cache"


def exchanged_link(at: Path, cache: Path) -> Path:
    link = open_link(at, give_away(cache))
    os.lchown(link, 12345, 12345)
    return link


def sticky_link(at: Path, cache: Path) -> Path:
    link = exchanged_link(at, cache)
    os.chown(cache, 0, 0)
    link.parent.chmod(0o1777)
    return link


def stranger_made_it(at: Path, cache: Path) -> Path:
    (at / "sticky").mkdir()
    (at / "sticky").chmod(0o1777)
    return give_away(cache.rename(at / "sticky/cache"))


def other_group(at: Path, cache: Path) -> Path:
    os.chown(cache / "units", 0, 12345)
    (cache / "units").chmod(0o775)
    return cache


def stranger_of_the_group(at: Path, cache: Path) -> Path:
    os.chown(cache, 12345, os.getegid())
    cache.chmod(0o775)
    return cache


def linked_units(at: Path, cache: Path) -> Path:
    (cache / "units").rename(at / "elsewhere")
    (cache / "units").symlink_to(at / "elsewhere")
    return cache


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize(
    ("make", "named"),
    [
        (open_link, "open can be written by every user (owner root, mode 0777)"),
        (exchanged_link, "open can be written by every user"),
        (sticky_link, "open/cache belongs to the user 12345"),
        (stranger_made_it, "sticky/cache belongs to the user 12345 (mode 0"),
        (other_group, "units can be written by the group 12345 (owner root, mode 0775)"),
        (stranger_of_the_group, "cache belongs to the user 12345 (mode 0775)"),
        (linked_units, "units is a symbolic link"),
    ],
)
def test_a_folder_that_others_can_replace_is_not_believed(
    tmp_path: Path, make: Callable[[Path, Path], Path], named: str
) -> None:
    store, records = built_store(tmp_path / "a")
    send(store, records, tmp_path / "cache")
    place = make(tmp_path, tmp_path / "cache")
    taken, lines = fill(Store.open(tmp_path / "b"), place)
    (line,) = lines
    assert taken == {} and "is not used: " in line and named in line


def test_a_trusted_folder_of_another_user_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid():
        pytest.skip("only root gives files away")
    store, records = built_store(tmp_path / "a")
    send(store, records, tmp_path / "cache")
    give_away(tmp_path / "cache")
    monkeypatch.setenv("ENVBUILD_TRUST", str(tmp_path / "cache"))
    assert sorted(fill(Store.open(tmp_path / "b"), tmp_path / "cache")[0]) == sorted(IMAGE)


def test_a_folder_that_another_user_makes_meanwhile_is_checked(tmp_path: Path) -> None:
    store, records = built_store(tmp_path / "a")
    (cache,) = opened(reporter := SilentReporter(), setting(tmp_path / "cache"))
    assert cache.find(KEYS["base"]) is None
    send(store, records, tmp_path / "cache")
    (tmp_path / "cache").chmod(0o777)
    assert cache.find(KEYS["base"]) is None and "every user" in reporter.lines[0]


def test_a_folder_of_a_group_has_its_mode_everywhere(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o2775)
    store, records = built_store(tmp_path / "a")
    send(store, records, cache)
    modes = {path.stat().st_mode & 0o7777 for path in (cache / "units", cache / "blobs", cache / "blobs/sha256")}
    assert modes == {0o2775}
