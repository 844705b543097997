"""`store gc`: what an image needs is preserved, the rest is removed, and never while another process uses the store."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.console import RecordingReporter, SilentReporter
from envbuild.core.store import gc as collecting
from envbuild.core.store.gc import collect, stem, unneeded_entries
from envbuild.core.store.store import LayerRecord, Store, UnitRecord, write_json
from envbuild.core.store.store_folders import OWN_FOLDERS
from envbuild.core.store.usage import usage
from tests.support.command import ROOT

pytestmark = pytest.mark.unit


def blob(store: Store, text: str) -> str:
    path = store.tmp / "new"
    path.write_text(text)
    os.utime(path, (0, 0))  # as fetched blobs have
    sha256 = store.add_blob(path)
    (store.root / "control").mkdir(exist_ok=True)
    (store.root / "control" / f"{sha256}.json").write_text(text)
    return sha256


def unit(store: Store, name: str) -> tuple[str, str]:
    """Return a built unit: (key, diff id of its layer)."""
    key, digest = (hashlib.sha256(f"{kind}{name}".encode()).hexdigest() for kind in ("key", "layer"))
    layer = LayerRecord(f"sha256:{digest}", 1, 1, name)
    (store.layer_tree(layer.diff_id) / "etc").mkdir(parents=True)
    write_json(store.layer_path(layer.diff_id) / "layer.json", {"diff_id": layer.diff_id, "size": 1, "files": 1})
    (store.root / "packs" / f"{digest}.zstd1-level3-block131072.v1").write_text("pack")
    wheel = blob(store, f"wheel of {name}")
    store.record_unit(UnitRecord(key, name, layer, ((f"{name}.whl", wheel),), 1.0))
    return key, layer.diff_id


def image(store: Store, name: str, lock: str, *, link: bool = True) -> dict[str, Any]:
    """Make the files of a built image; return their names by kind."""
    folder = store.root / "artifacts"
    artifact = folder / f"{name}-{lock}.sqsh"
    artifact.write_text(f"squashfs {name} {lock}")
    evidence = folder / f"{name}-{lock}.evidence.json"
    evidence.write_text("{}")
    (folder / f"{name}-{lock}.oci" / "blobs").mkdir(parents=True)
    (folder / f"{name}-{lock}.oci" / "blobs" / "x").write_text("x")
    key, layer = unit(store, f"{name}{lock}")
    source = blob(store, f"source of {name} {lock}")
    stat = artifact.stat()
    record = {
        "made": {"artifact": str(artifact), "evidence": str(evidence), "layers": [layer]},
        "stat": [stat.st_size, stat.st_mtime_ns],
        "holds": {"units": [key], "blobs": [source]},
    }
    path = store.root / "images" / f"{hashlib.sha256(f'{name}{lock}'.encode()).hexdigest()}.json"
    write_json(path, record)
    if link:
        (folder / f"{name}.sqsh").unlink(missing_ok=True)
        (folder / f"{name}.sqsh").symlink_to(artifact.name)
    return {"artifact": artifact, "record": path, "key": key, "layer": layer, "source": source, "data": record}


def everything_in(store: Store) -> set[str]:
    """Paths of files and links below the store, but for lock files."""
    found = (path for path in store.root.rglob("*") if path.is_symlink() or not path.is_dir())
    return {str(path.relative_to(store.root)) for path in found if path.parent.name != "locks"}


def week_later(monkeypatch: pytest.MonkeyPatch, weeks: float = 1.1) -> None:
    """Advance the clock: no call can set the time of a file's last change."""
    now = time.time() + weeks * collecting.WEEK
    monkeypatch.setattr(time, "time", lambda: now)


def test_everything_that_a_built_image_needs_is_preserved(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    image(store, "one", "aaaaaaaaaaaa")
    image(store, "two", "bbbbbbbbbbbb")
    before = everything_in(store)
    assert collect(store, SilentReporter(), dry_run=False, everything=True) == ([], 0)
    week_later(monkeypatch)
    assert collect(store, SilentReporter(), dry_run=False, everything=False) == ([], 0)
    assert everything_in(store) == before


def test_own_evidence_in_a_store_of_a_group_is_removed_with_its_image(store: Store) -> None:
    store.root.chmod(0o3775)
    store = Store.open(store.root)
    image(store, "one", "aaaaaaaaaaaa")
    own = store.own_folder("artifacts")
    assert own.parent.name.startswith("user-")
    for lock in ("aaaaaaaaaaaa", "bbbbbbbbbbbb"):
        (own / f"one-{lock}.evidence.json").write_text("{}")
    assert collect(store, SilentReporter(), dry_run=False, everything=False)[0] == [], "younger than a week"
    removed, _ = collect(store, SilentReporter(), dry_run=False, everything=True)
    assert removed == [f"{own.parent.name}/artifacts/one-bbbbbbbbbbbb.evidence.json"]
    assert [path.name for path in own.iterdir()] == ["one-aaaaaaaaaaaa.evidence.json"]


def test_an_older_build_of_an_image_is_removed_with_what_only_it_used(store: Store) -> None:
    image(store, "one", "bbbbbbbbbbbb")
    (store.root / "artifacts" / "one.sqsh").unlink()
    alone = everything_in(store)
    old = image(store, "one", "aaaaaaaaaaaa")
    (store.root / "artifacts" / "one.sqsh").unlink()
    (store.root / "artifacts" / "one.sqsh").symlink_to("one-bbbbbbbbbbbb.sqsh")
    before = everything_in(store)
    assert collect(store, SilentReporter(), dry_run=False, everything=False)[0] == [], "younger than a week"
    announced, _ = collect(store, SilentReporter(), dry_run=True, everything=True)
    assert everything_in(store) == before, "a dry run removes nothing"
    removed, freed = collect(store, SilentReporter(), dry_run=False, everything=True)
    assert removed == announced and freed > 0
    assert everything_in(store) == alone | {"artifacts/one.sqsh"}
    assert f"images/{old['record'].name}" in removed and f"blobs/sha256/{old['source']}" in removed


def test_an_older_build_is_removed_after_a_week(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    old = image(store, "one", "aaaaaaaaaaaa")
    image(store, "one", "bbbbbbbbbbbb")
    week_later(monkeypatch)
    collect(store, SilentReporter(), dry_run=False, everything=False)
    assert not old["artifact"].exists() and not old["record"].exists() and store.unit(old["key"]) is None
    assert (store.root / "artifacts" / "one.sqsh").resolve().is_file()


def test_a_unit_that_a_current_image_shares_is_preserved(store: Store) -> None:
    old = image(store, "one", "aaaaaaaaaaaa")
    new = image(store, "one", "bbbbbbbbbbbb")
    shared = new["data"]
    shared["holds"] = {"units": [new["key"], old["key"]], "blobs": [old["source"]]}
    write_json(new["record"], shared)
    collect(store, SilentReporter(), dry_run=False, everything=True)
    assert not old["artifact"].exists() and store.unit(old["key"]) and store.has_blob(old["source"])
    assert not store.has_blob(new["source"]), "no record holds it any more"


def test_records_of_an_overwritten_artifact_protect_nothing(store: Store) -> None:
    made = image(store, "one", "aaaaaaaaaaaa")
    stale, layer = unit(store, "of an earlier recipe")
    record = {**made["data"], "stat": [1, 1], "holds": {"units": [stale], "blobs": []}}
    path = store.root / "images" / f"{'e' * 64}.json"
    write_json(path, record)
    collect(store, SilentReporter(), dry_run=False, everything=True)
    assert not path.exists() and store.unit(stale) is None and not store.layer_path(layer).exists()
    assert made["record"].exists() and store.unit(made["key"])


def test_a_touched_artifact_still_protects_its_units(store: Store) -> None:
    made = image(store, "one", "aaaaaaaaaaaa")
    os.utime(made["artifact"], (1, 1))
    collect(store, SilentReporter(), dry_run=False, everything=True)
    assert made["record"].exists() and store.unit(made["key"])


def test_records_that_are_damaged_or_without_artifact_are_removed_at_once(store: Store) -> None:
    made = image(store, "one", "aaaaaaaaaaaa")
    made["artifact"].unlink()
    for name, text in (("c", '{"made": {'), ("e", "{}"), ("f", "[]")):
        (store.root / "images" / f"{name * 64}.json").write_text(text)
    collect(store, SilentReporter(), dry_run=False, everything=False)
    assert list((store.root / "images").iterdir()) == []
    assert not (store.root / "artifacts" / "one.sqsh").is_symlink(), "a link to nothing"
    assert store.unit(made["key"]), "the next build may want it for a week"


def test_only_old_unused_files_in_tmp_are_removed(store: Store) -> None:
    tmp = store.tmp
    (tmp / f"damaged-{'a' * 64}").write_text("x")
    (tmp / "removed-x" / "tree").mkdir(parents=True)
    (tmp / "1-0badcafe").mkdir()
    (tmp / "fresh").write_text("x")
    with store.workdir() as alive:
        collect(store, SilentReporter(), dry_run=False, everything=False)
        assert sorted(tmp.iterdir()) == sorted([alive, tmp / "fresh"])


def test_files_of_the_user_remain_in_tmp_and_images(store: Store) -> None:
    mine = [store.tmp / "thesis" / "chapter1", store.tmp / "notes", store.root / "images" / "holiday.jpg"]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    gone = [store.tmp / ".probe-0badcafe", store.tmp / "tmpabc_12x8", store.root / "images" / f"{'a' * 64}.json"]
    gone.append(store.root / "images" / f".{'b' * 64}.json.0badcafe")
    for path in gone:
        path.write_text("x")
    assert list(store.abandoned()) == [], "the cleaning at the start of each command"
    collect(store, SilentReporter(), dry_run=False, everything=True)
    assert [path for path in mine if not path.exists()] == [] and [path for path in gone if path.exists()] == []


def test_caches_are_removed_after_a_week_without_use(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    caches = ("apt/bookworm/state/x", "apt/trixie/state/x", "buildah/overlay/storage.lock", "git/ucx.git/objects/x")
    for name in (*caches, "uv/simple/index/x"):
        (store.root / name).parent.mkdir(parents=True)
        (store.root / name).write_text("x")
    assert collect(store, SilentReporter(), dry_run=False, everything=False)[0] == []
    week_later(monkeypatch, 0.9)
    assert collect(store, SilentReporter(), dry_run=False, everything=False)[0] == []
    week_later(monkeypatch)
    removed = collect(store, SilentReporter(), dry_run=False, everything=False)[0]
    assert removed == ["apt/bookworm", "apt/trixie", "buildah/overlay", "git/ucx.git", "uv/simple"]
    assert list((store.tmp).iterdir()) == []


def test_control_files_are_removed_with_their_package(store: Store) -> None:
    sha256 = blob(store, "deb")
    (store.root / "control" / f"{'f' * 64}.json").write_text("of a package that is gone")
    assert collect(store, SilentReporter(), dry_run=False, everything=False)[0] == [f"control/{'f' * 64}.json"]
    assert collect(store, SilentReporter(), dry_run=False, everything=True)[0] == [
        f"blobs/sha256/{sha256}",
        f"control/{sha256}.json",
    ]


def test_a_shared_lock_waits_for_the_exclusive_one(store: Store) -> None:
    waits, done = threading.Event(), threading.Event()

    def share() -> None:
        with store.lock("gc", waits.set, shared=True):
            done.set()

    with (store.root / "locks" / "gc").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        thread = threading.Thread(target=share)
        thread.start()
        assert waits.wait(60) and not done.wait(0.3)
    thread.join(60)
    assert done.is_set()


def test_usage_names_the_caches(store: Store) -> None:
    (store.root / "uv").mkdir()
    (store.root / "uv" / "x").write_bytes(b"x" * 10_000)
    assert usage(store)["uv"] >= 10_000


def test_a_store_is_not_world_writable(tmp_path: Path) -> None:
    """Only a group shares a store; in /tmp no other user may put a pack into it."""
    for mode, expected in ((0o1777, 0o755), (0o3775, 0o2775), (0o755, 0o755)):
        root = tmp_path / f"{mode:o}"
        root.mkdir()
        root.chmod(mode)
        before = os.umask(0o022)
        try:
            Store.open(root)
        finally:
            os.umask(before)
        modes = {path.name: path.stat().st_mode & 0o7777 for path in root.iterdir() if path.is_dir()}
        private = (*OWN_FOLDERS, f"user-{os.geteuid()}")
        special = {"blobs": 0o3775, "locks": 0o2770} if mode == 0o3775 else {"locks": 0o700}
        assert modes == {name: 0o700 if name in private else expected for name in modes} | special
        assert (f"user-{os.geteuid()}" in modes) == (mode == 0o3775)


@pytest.mark.parametrize("ending", ["sqsh", "oci", "erofs", "evidence.json"])
def test_the_files_of_one_artifact_share_a_stem(ending: str) -> None:
    assert stem(f"torch-2.8-0123456789ab.{ending}") == "torch-2.8-0123456789ab"


def test_the_file_that_is_linked_is_preserved_with_its_evidence_alone(store: Store) -> None:
    """One lock may have files of several configurations: a recipe was edited."""
    folder, name = store.root / "artifacts", "app-0123456789ab"
    kept = {f"{name}-00000001.sqsh", f"{name}-00000001.provenance.json", f"{name}.evidence.json", "app.sqsh"}
    older = (f"{name}.sqsh", f"{name}.cdx.json")  # of releases before
    for path in (*kept - {"app.sqsh"}, f"{name}-00000002.sqsh", f"{name}-00000002.cdx.json", *older):
        (folder / path).write_text("x")
    (folder / "app.sqsh").symlink_to(f"{name}-00000001.sqsh")
    for path in list(unneeded_entries(store, everything=True)):
        path.unlink()
    assert {path.name for path in folder.iterdir()} == kept


def test_a_file_that_another_one_of_its_lock_replaced_remains_for_a_day(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each edit of a project folder makes a file of a new name, of up to 20 GB."""
    folder, lock = store.root / "artifacts", "app-0123456789ab"
    for name in (
        f"{lock}-00000001.sqsh",
        f"{lock}-00000002.sqsh",
        f"{lock}-00000003.sqsh",
        "app-ffffffffffff-00000004.sqsh",
    ):
        (folder / name).write_text("x")
    (folder / "app.sqsh").symlink_to(f"{lock}-00000001.sqsh")
    hours = {f"{lock}-00000002.sqsh": 25, f"{lock}-00000003.sqsh": 23}
    now = time.time()
    monkeypatch.setattr("envbuild.core.store.gc.change_time", lambda path: now - 3600 * hours.get(path.name, 100))

    def unneeded() -> list[str]:
        return [path.name for path in unneeded_entries(store, everything=False) if path.parent == folder]

    assert unneeded() == [f"{lock}-00000002.sqsh"]
    hours["app.sqsh"] = 1  # it led to one of them until then
    assert unneeded() == []


def test_nothing_is_removed_through_a_link_out_of_the_store(store: Store, tmp_path: Path) -> None:
    """A downloaded project may contain a store with such links; git keeps them."""
    outside = tmp_path / "documents"
    outside.mkdir()
    (outside / "thesis.doc").write_text("years of work")
    shutil.rmtree(store.root / "packs")
    (store.root / "packs").symlink_to(outside)
    lines = RecordingReporter(SilentReporter())
    removed, _ = collect(store, lines, dry_run=False, everything=True)
    assert not [name for name in removed if "thesis" in name] and (outside / "thesis.doc").exists()
    assert [line for line in lines.take_warnings() if str(outside) in line]


def test_a_long_name_is_removed_too(tmp_path: Path) -> None:
    """In a store that a group shares each member can make one."""
    store = Store.open(tmp_path / "s")
    name = "n" * 250
    for folder in ("packs", "units", "control"):
        (store.root / folder).mkdir(exist_ok=True)
        (store.root / folder / name).mkdir()
    removed, _ = collect(store, SilentReporter(), dry_run=False, everything=True)
    assert sorted(removed) == [f"{folder}/{name}" for folder in ("control", "packs", "units")]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system of another user needs root")
def test_a_file_system_of_another_member_remains(tmp_path: Path) -> None:
    """It shows nothing of itself, not even to root (fuse(4): without allow_other)."""
    store = Store.open(tmp_path / "s")
    for folder in ("artifacts", "images"):
        (store.root / folder / "m").mkdir()
    blob(store, "not needed")
    code = f"""
import os, sys
from pathlib import Path
from envbuild.core.console import SilentReporter
from envbuild.core.store.gc import collect
from envbuild.core.store.store import Store
from envbuild.core.userns import libc
from envbuild.verify.store_check import check_store

store = Store.open(Path({str(store.root)!r}))
for folder in ("artifacts", "images"):
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={{device}},rootmode=40000,user_id=54321,group_id=54321"
    libc.mount("other", str(store.root / folder / "m"), "fuse", libc.MS_NOSUID | libc.MS_NODEV, options)
try:
    (store.root / "images/m").lstat()
except OSError:
    print("hidden")
print(len(collect(store, SilentReporter(), dry_run=False, everything=True)[0]))
print(len(check_store(store, SilentReporter(), repair=True).damaged))
"""
    command = ["unshare", "-m", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert (done.stdout.split(), done.returncode) == (["hidden", "2", "0"], 0), done.stderr
