"""A member of the group that shares a store acts between the check and the use of a name by another member's command:
what it puts there is not followed, and decides nothing of the other member."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import InputError
from envbuild.core.store.permissions import make_shared_folder, move_into_store
from envbuild.core.store.records import read_record, write_record
from envbuild.core.store.store import Store
from envbuild.lock.base_image.file_tree import FORMAT, read_image_tree
from envbuild.squashfs.write.copy_extents import copy_file
from tests.support.acting_member import run_against
from tests.support.as_user import open_folder, run_as
from tests.support.local_registry import file, tar

pytestmark = [pytest.mark.unit, pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")]

GROUP, ONE, TWO = 50_000, 50_001, 50_002


@pytest.fixture
def shared() -> Iterator[Path]:
    """Return a store of root that a group shares; beside it `home`, with what the member ONE alone may read."""
    with open_folder() as path:
        store, home = path / "store", path / "home"
        store.mkdir()
        shutil.chown(store, group=GROUP)
        store.chmod(0o3775)
        Store.open(store)
        (home / "folder").mkdir(parents=True)
        (home / "secret").write_text('{"stolen": true}')
        for entry in (home, *home.iterdir()):
            shutil.chown(entry, ONE, ONE)
            entry.chmod(0o700 if entry.is_dir() else 0o600)
        yield store


def attacked(command: Callable[[], object], at: Callable[[str], bool], target: Path) -> object:
    """Return the result of a command of ONE, whose name TWO replaced."""
    happened, result = run_against(ONE, TWO, GROUP, command, at=at, target=target)
    assert happened, "the link was put in place in time"
    return result


def test_what_replaces_a_new_folder_does_not_get_its_mode(shared: Path) -> None:
    """Where folders have no sticky bit, as in a store of an older version."""
    victim, new = shared.with_name("home") / "folder", shared / "packs/new"
    attacked(lambda: make_shared_folder(new), lambda name: "/.new." in name, victim)
    assert victim.stat().st_mode & 0o7777 == 0o700
    assert not new.exists()


def test_what_replaces_a_finished_file_is_not_shared_with_the_group(shared: Path) -> None:
    victim, target = shared.with_name("home") / "secret", shared / "packs" / ("a" * 64)
    target.touch()

    def move() -> None:
        source = Store.open(shared).tmp / "finished"
        source.write_text("pack")
        move_into_store(source, target)

    happened, _ = run_against(ONE, TWO, GROUP, move, at=lambda name: name == str(target), target=victim)
    status, shared_file = victim.stat(), target.lstat()
    assert (status.st_mode & 0o7777, status.st_gid) == (0o600, ONE)
    assert happened or (shared_file.st_mode & 0o7777, shared_file.st_gid) == (0o664, GROUP)


def test_a_record_that_a_member_replaces_by_a_link_is_not_there(shared: Path) -> None:
    artifact, record = shared / "artifacts/app-1.sqsh", shared / "images" / f"{'a' * 64}.json"
    artifact.write_text("squashfs")
    write_record(record, {"artifact": str(artifact), "evidence": "", "layers": []})
    assert run_as(ONE, ONE, (GROUP,), lambda: read_record(record)) is not None
    found = attacked(lambda: read_record(record), lambda name: name == str(record), shared.with_name("home") / "secret")
    assert found is None


@pytest.mark.parametrize("name", ["blobs", "blobs/sha256", "artifacts", "packs"])
def test_a_folder_is_not_replaced_between_the_check_of_a_store_and_its_use(name: str, shared: Path) -> None:
    victim, blob = shared.with_name("home") / "folder", hashlib.sha256(b"content").hexdigest()

    def add() -> bool:
        store = Store.open(shared)
        (store.tmp / "new").write_text("content")
        return store.has_blob(store.add_blob(store.tmp / "new"))

    happened, added = run_against(
        ONE, TWO, GROUP, add, at=lambda path: path.endswith("/tmp/new"), target=victim, replaced=shared / name
    )
    assert (happened, added) == (False, True)
    assert list(victim.iterdir()) == [] and (shared / "blobs/sha256" / blob).is_file()


def test_a_finished_image_that_becomes_a_link_is_not_copied(shared: Path) -> None:
    artifact, copy = shared / "artifacts/app-1.sqsh", shared.with_name("home") / "copy"
    artifact.write_text("squashfs")

    def take() -> None:
        with copy.open("xb") as out:
            copy_file(artifact, out.fileno())

    attacked(take, lambda name: name == str(artifact), shared.with_name("home") / "secret")
    assert copy.read_text() == ""


def test_a_cached_tree_of_a_base_image_is_of_no_other_member(shared: Path) -> None:
    """The lock of an image depends on it: on the release, and on the packages that the base has."""
    layer = tar(file("etc/os-release", b"ID=debian"))
    digest, image = hashlib.sha256(layer).hexdigest(), "0" * 64
    (shared / "blobs/sha256" / digest).write_bytes(layer)

    def plant() -> None:
        (shared / "base").mkdir(exist_ok=True)
        hostile = {"format": FORMAT, "root": {"etc": {"os-release": ["SUQ9aG9zdGlsZQ=="]}}}
        (shared / "base" / f"{image}.json.gz").write_bytes(gzip.compress(json.dumps(hostile).encode()))

    def release() -> str | None:
        return read_image_tree(image, [digest], Store.open(shared), SilentReporter()).text("/etc/os-release")

    run_as(TWO, TWO, (GROUP,), plant)
    assert run_as(ONE, ONE, (GROUP,), release) == "ID=debian"
    assert release() == "ID=debian"


@pytest.mark.parametrize("kind", ["another layer", "a link"])
def test_a_layer_of_a_base_image_that_another_member_wrote_is_not_read(kind: str, shared: Path) -> None:
    good, other = tar(file("etc/os-release", b"ID=debian")), tar(file("etc/os-release", b"ID=hostile"))
    digest, image = hashlib.sha256(good).hexdigest(), "0" * 64
    blob = shared / "blobs/sha256" / digest

    def plant() -> None:
        if kind == "a link":
            (blob.parent / "other").write_bytes(good)
            blob.symlink_to("other")
        else:
            blob.write_bytes(other)

    def release() -> str | None:
        return read_image_tree(image, [digest], Store.open(shared), SilentReporter()).text("/etc/os-release")

    run_as(TWO, TWO, (GROUP,), plant)
    with pytest.raises(InputError, match="corrupt blob"):
        release()
    assert not os.path.lexists(blob), "the next run fetches it again"
    blob.write_bytes(good)
    assert release() == "ID=debian"


def test_a_cached_tree_is_read_to_a_limit_of_memory(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file may unpack to much more: the limit holds while it is read."""
    layer = tar(file("etc/os-release", b"ID=debian"))
    digest, image = hashlib.sha256(layer).hexdigest(), "0" * 64
    (shared / "blobs/sha256" / digest).write_bytes(layer)
    store = Store.open(shared)
    bomb = b'{"format": 1, "root": {' + b" " * (64 << 20) + b"}}"
    (store.own_folder("base") / f"{image}.json.gz").write_bytes(gzip.compress(bomb, 1))
    monkeypatch.setattr("envbuild.lock.base_image.file_tree.LARGEST_CACHED", 1 << 20, raising=False)
    tracemalloc.start()
    try:
        tree = read_image_tree(image, [digest], store, SilentReporter())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert tree.text("/etc/os-release") == "ID=debian"
    assert peak < 16 << 20
