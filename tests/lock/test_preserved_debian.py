"""A lock of a spec that differs in its Python packages alone: the Debian packages of the older lock remain."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.core.store.store import Store
from envbuild.lock.lockfile import read_lock
from envbuild.lock.model import Lock
from tests.support.debian_archive import Signer, publish, signer, stanza
from tests.support.lock_project import BASE, LockProject
from tests.support.lock_server import wheel
from tests.support.lock_site import MARKS

pytestmark = [*MARKS, pytest.mark.slow_unit]

NEWER = (stanza("dash", "1.1", essential=True), *BASE[1:])


@pytest.fixture(scope="module")
def key() -> Iterator[Signer]:
    with signer() as found:
        yield found


@pytest.fixture
def place(tmp_path: Path, key: Signer) -> LockProject:
    """Return a project that is locked; then the archive replaces a package, and the spec requires one more."""
    project = LockProject(tmp_path, key, {"python-packages": ["one"]})
    project.publish()
    wheels = [wheel(tmp_path / "wheels", name, "1.0") for name in ("one", "two")]
    project.index(*wheels)
    done = project.lock()
    assert done.returncode == 0, done.stderr
    publish(tmp_path / "debian", "trixie", [*NEWER, stanza("hello")], key)
    project.layers = {"python-packages": ["one", "two"]}
    return project


def read(place: LockProject) -> Lock:
    return read_lock(place.folder / "project/images/k.lock")


def version(place: LockProject, name: str = "dash") -> str:
    return next(file.version for file in read(place).debian.values() if file.name == name)


def lock(place: LockProject, *options: str) -> str:
    done = place.lock(*options)
    assert done.returncode == 0, done.stderr
    assert any(file.name == "two" for file in read(place).python_files.values())
    return done.stderr


def keep_in_pool(place: LockProject) -> None:
    (file,) = (file for file in read(place).debian.values() if file.name == "dash")
    path = place.folder / "debian" / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(file.size))


def test_a_file_that_is_still_in_the_pool_remains(place: LockProject) -> None:
    keep_in_pool(place)
    before = read(place)
    report = lock(place)
    assert "1 Debian package left the archive and remain in the lock: dash 1.0" in report
    after = read(place)
    assert (after.debian, after.releases, after.epoch) == (before.debian, before.releases, before.epoch)
    assert after.units["base"] == before.units["base"]


def test_with_all_files_in_the_store_no_archive_is_read(place: LockProject) -> None:
    store = Store.open(place.folder / "store")
    for file in read(place).debian.values():
        store.blob(file.sha256).touch()
    shutil.rmtree(place.folder / "debian")
    before = read(place).debian
    assert "all are in the store" in lock(place)
    assert read(place).debian == before


def test_a_file_that_no_place_has_is_replaced(place: LockProject) -> None:
    lock(place)
    assert version(place) == "1.1"


@pytest.mark.parametrize("option", ["--refresh", "--fresh", "--upgrade=dash"])
def test_the_options_for_newer_versions_take_them(place: LockProject, option: str) -> None:
    keep_in_pool(place)
    lock(place, option)
    assert version(place) == "1.1"


def test_another_request_of_debian_packages_is_resolved(place: LockProject) -> None:
    keep_in_pool(place)
    place.layers = {**place.layers, "debian-packages": ["hello"]}
    lock(place)
    assert (version(place), version(place, "hello")) == ("1.1", "1.0")
