"""The store: what is written is found again whole, and processes do not disturb each other."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from envbuild.core import digest
from envbuild.core.console import SilentReporter
from envbuild.core.digest import file_digest, stored_digest
from envbuild.core.errors import EngineError, InputError
from envbuild.core.store import store_folders, work_folders
from envbuild.core.store.build_records import PACK_VERSION
from envbuild.core.store.json_files import write_private
from envbuild.core.store.store import (
    LayerRecord,
    SharedLayer,
    Store,
    UnitRecord,
    read_json,
    stamp,
    write_atomic,
    write_json,
)
from envbuild.core.store.store_folders import CLOSED, FOLDERS
from envbuild.core.store.use import in_use
from envbuild.core.store.work_folders import is_locked
from envbuild.verify.store_check import check_store
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.unit


def add(store: Store, text: str) -> str:
    path = store.tmp / "new"
    path.write_text(text)
    path.chmod(0o600)
    return store.add_blob(path)


def test_opening_makes_every_folder_and_leaves_nothing_else(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "a/b")
    assert all((store.root / name).is_dir() for name in (*FOLDERS, *CLOSED))
    assert list((store.tmp).iterdir()) == []
    Store.open(store.root)


def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineError) as caught:
        Store.open(tmp_path / "file")
    assert "ENVBUILD_STORE" in caught.value.hint


def test_a_full_disk_is_reported_and_another_error_is_itself(store: Store) -> None:
    for code in (errno.ENOSPC, errno.EDQUOT):
        with pytest.raises(EngineError, match="is full"), store.filled():
            raise OSError(code, "full")
    with pytest.raises(OSError) as caught, store.filled():
        raise OSError(errno.EACCES, "no")
    assert caught.value.errno == errno.EACCES


@pytest.mark.parametrize("blocked", ["mkdir", "open"])
def test_a_full_disk_takes_no_work_folder_and_leaves_none(
    store: Store, monkeypatch: pytest.MonkeyPatch, blocked: str
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> object:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    if blocked == "open":
        monkeypatch.setattr(Path, "open", refuse)
    else:
        monkeypatch.setattr(work_folders, "make_private_folder", refuse)
    with pytest.raises(EngineError, match="is full: No space left") as caught, store.workdir():
        pass
    assert "store gc" in caught.value.hint
    assert list(store.tmp.iterdir()) == []


def test_a_full_disk_is_not_a_missing_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *, may_be_full: bool) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), str(path))

    monkeypatch.setattr(store_folders, "try_to_write", refuse)
    with pytest.raises(EngineError, match="is full: Disk quota exceeded") as caught:
        Store.open(tmp_path / "store")
    assert "store gc" in caught.value.hint


def test_a_disk_without_room_for_a_file(tmp_path: Path) -> None:
    """`store gc` cannot make its locks there."""
    command = ["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=10", "none", str(tmp_path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mount needs root and CAP_SYS_ADMIN")
    try:
        with pytest.raises(EngineError, match="is full: No space left") as caught:
            Store.open(tmp_path / "store")
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)
    assert "store gc" in caught.value.hint and "remove one outside of the store" in caught.value.hint


def test_store_gc_needs_no_room_for_a_file(tmp_path: Path) -> None:
    """A quota of files, as parallel file systems have, is full of what it would remove."""
    command = ["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=60", "none", str(tmp_path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mount needs root and CAP_SYS_ADMIN")
    gc = [sys.executable, "-m", "envbuild", "store", "gc", "--all"]
    env = {**os.environ, "ENVBUILD_STORE": str(tmp_path / "store")}
    try:
        subprocess.run(gc, env=env, check=True, capture_output=True)
        left = tmp_path / "store/layers" / ("0" * 64) / "usr/lib"
        left.mkdir(parents=True)
        with pytest.raises(OSError, match="No space left"):
            for number in range(60):
                (left / str(number)).touch()
        with pytest.raises(EngineError, match="is full: No space left") as caught:
            Store.open(tmp_path / "store")
        assert caught.value.hint.endswith("no file more fits there (df -i)")
        subprocess.run(gc, env=env, check=True, capture_output=True)
        assert list((tmp_path / "store/layers").iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_blobs_are_found_by_their_digest(store: Store) -> None:
    sha256 = add(store, "text")
    assert sha256 == hashlib.sha256(b"text").hexdigest()
    assert store.has_blob(sha256) and not store.has_blob("0" * 64)
    assert store.has_blob(sha256, 4) and not store.has_blob(sha256, 3)
    assert store.blob(sha256).stat().st_mode & 0o777 == 0o644
    store.check_blob(sha256)
    assert store.blob(sha256).read_text() == "text"


def test_what_decides_a_lock_is_a_copy_in_a_store_of_a_group(tmp_path: Path) -> None:
    """Its members may write a file at any time, also between its digest and its use."""
    (tmp_path / "shared").mkdir(mode=0o700)
    (tmp_path / "shared").chmod(0o3775)
    store = Store.open(tmp_path / "shared")
    sha256 = add(store, "text")
    pinned = store.pin_blob(sha256)
    assert os.fstat(pinned.fd).st_ino != store.blob(sha256).stat().st_ino
    with store.blob(sha256).open("r+") as file:
        file.write("evil")
    assert pinned.path.read_text() == "text"
    with pytest.raises(InputError, match="corrupt blob"):
        store.pin_blob(sha256)


def test_a_corrupt_blob_is_removed(store: Store) -> None:
    sha256 = add(store, "text")
    store.blob(sha256).write_text("tixt")
    with pytest.raises(InputError) as caught:
        store.check_blob(sha256)
    assert caught.value.where == str(store.blob(sha256))
    assert not store.has_blob(sha256)
    assert list((store.tmp).iterdir()) == []


@pytest.mark.parametrize(("pieces", "size"), [(1, 0), (1, 5000), (1, 3 << 20), (10_001, 4096)])
def test_a_blob_of_holes_is_not_read(store: Store, pieces: int, size: int) -> None:
    """Another member of a group can put one of petabytes there, which needs no disk, or little."""
    sha256 = add(store, "text")

    def replace_blob() -> None:
        with store.blob(sha256).open("wb") as file:
            for number in range(pieces):
                os.pwrite(file.fileno(), os.urandom(size), number << 29)
            file.truncate(8 << 40)

    for read in (store.check_blob, store.pin_blob):
        replace_blob()
        with ends_within(30), pytest.raises(InputError, match="got far more bytes than are on the disk"):
            read(sha256)
        assert not store.has_blob(sha256)
    replace_blob()
    with ends_within(30):
        (damage,) = check_store(store, SilentReporter(), repair=True).damaged
    assert damage.reason == f"expected sha256 {sha256}, got far more bytes than are on the disk"


def test_a_blob_of_one_block_many_times_is_not_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """On XFS and btrfs (reflinks) each block of it counts, and it takes no disk either."""
    monkeypatch.setattr(digest, "LARGEST", 1 << 20)
    for read in (store.check_blob, store.pin_blob):
        sha256 = add(store, "text")
        store.blob(sha256).write_bytes(bytes((1 << 20) + 1))
        with pytest.raises(InputError, match="got far more bytes than are on the disk"):
            read(sha256)
        assert not store.has_blob(sha256)


def test_a_file_that_its_user_names_may_be_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is for files that another member of a group can put into a store."""
    monkeypatch.setattr(digest, "LARGEST", 3)
    (tmp_path / "file").write_bytes(b"text")
    assert file_digest(tmp_path / "file") == hashlib.sha256(b"text").hexdigest()
    assert stored_digest(tmp_path / "file") == digest.HOLLOW


def test_a_blob_of_another_member_does_not_fill_the_disk(tmp_path: Path) -> None:
    """A copy of it that has no room is not begun; a damaged one is removed, a sound one remains."""
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(tmp_path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mount needs root and CAP_SYS_ADMIN")
    try:
        (tmp_path / "shared").mkdir(mode=0o700)
        (tmp_path / "shared").chmod(0o3775)
        store, content = Store.open(tmp_path / "shared"), os.urandom(5 << 20)
        sha256 = hashlib.sha256(content).hexdigest()
        store.blob(sha256).write_bytes(content)
        before = os.statvfs(tmp_path).f_bfree
        with pytest.raises(OSError, match="No space left"):
            store.pin_blob(sha256)
        assert os.statvfs(tmp_path).f_bfree == before and store.has_blob(sha256)
        store.blob(sha256).write_bytes(bytes(5 << 20))
        with pytest.raises(InputError, match="corrupt blob"):
            store.pin_blob(sha256)
        assert not store.has_blob(sha256)
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_file_with_some_holes_is_read(tmp_path: Path) -> None:
    with (tmp_path / "some").open("wb") as file:
        for number in range(20):
            file.seek(number << 20)
            file.write(b"x" * 4096)
    assert stored_digest(tmp_path / "some") == file_digest(tmp_path / "some")


def test_a_folder_in_the_place_of_a_blob_is_removed_by_the_next_command(store: Store) -> None:
    sha256 = add(store, "text")
    store.blob(sha256).unlink()
    (store.blob(sha256) / "folder").mkdir(parents=True)
    with in_use(store, SilentReporter()):
        with pytest.raises(InputError, match="corrupt blob"):
            store.check_blob(sha256)
        assert not os.path.lexists(store.blob(sha256))
    with in_use(store, SilentReporter()):
        pass
    assert list((store.tmp).iterdir()) == []


def test_a_unit_is_found_while_its_product_is_there(store: Store) -> None:
    layer, wheel = LayerRecord("sha256:" + "1" * 64, 10, 2, "ucx"), add(store, "wheel")
    first, second = UnitRecord("a" * 64, "ucx", layer), UnitRecord("b" * 64, "apex", None, (("x.whl", wheel),), 2.5)
    for record in (first, second):
        store.record_unit(record)
    assert store.unit(first.key) is None and store.unit("c" * 64) is None
    store.layer_tree(layer.diff_id).mkdir(parents=True)
    write_json(store.layer_path(layer.diff_id) / "layer.json", {"diff_id": layer.diff_id, "size": 10, "files": 2})
    assert (store.unit(first.key), store.unit(second.key)) == (first, second)
    assert store.layer(layer.diff_id) == LayerRecord(layer.diff_id, 10, 2)
    assert layer.hex == "1" * 64
    store.blob(wheel).unlink()
    assert store.unit(second.key) is None
    with pytest.raises(EngineError):
        store.layer("sha256:" + "2" * 64)


def test_the_record_of_a_unit_has_its_box(store: Store) -> None:
    box = {"seccomp": True, "keyring": True, "cgroup": False}
    record = UnitRecord("a" * 64, "x", box=box)
    store.record_unit(record)
    found = store.unit(record.key)
    assert found == record and found.box == box
    path = store.root / f"units/{record.key}.json"
    for value, expected in (({}, {}), ({"box": {"seccomp": 1}}, {"seccomp": False}), ({"box": ["seccomp"]}, None)):
        write_json(path, {**UNIT, **value})  # {}: of an envbuild that did not record it
        found = store.unit(record.key)
        assert (found.box if found else None) == expected


UNIT = {"key": "a" * 64, "unit": "x", "layer": None, "wheels": [], "seconds": 1.0, "source": "", "caches": []}
LAYER = {"diff_id": f"sha256:{'1' * 64}", "size": 1, "files": 1, "unit": "x"}
VALUES: list[object] = [None, [], {}, 3, 1.5, 10**400, "text", True, [[]], {"key": 1}, {"made": 3}]
VALUES.append({"made": {}, "stat": []})
ODD_UNITS = [{**UNIT, key: value} for key in UNIT for value in VALUES]
ODD_LAYERS = [{**LAYER, key: value} for key in LAYER for value in (*VALUES, "../../etc")]


@pytest.mark.slow_unit
@pytest.mark.parametrize(
    "value", [*VALUES, *ODD_UNITS, *({**UNIT, "layer": layer} for layer in (*VALUES, *ODD_LAYERS))]
)
def test_any_json_in_the_record_of_a_unit_is_a_unit_that_is_not_there(value: object, store: Store) -> None:
    key = "a" * 64
    write_json(store.root / "units" / f"{key}.json", value)
    found = store.unit(key)
    assert found is None or json.loads(json.dumps(asdict(found))) == {**UNIT, "box": {}, **found_fields(value)}


def found_fields(value: object) -> dict[str, object]:
    """Return the fields of the only odd values that are a record."""
    assert isinstance(value, dict)
    assert not value["layer"] and value["wheels"] in ([], {}, "") and isinstance(value["unit"], str)
    found = {"unit": value["unit"], "seconds": float(value["seconds"]), "source": value["source"]}
    return {**found, "caches": value["caches"]}


@pytest.mark.parametrize("content", [b"", b"[", b"\xff\xfe", b"[" * 100_000, b'{"a": 1'])
def test_a_file_that_is_not_json_reads_as_missing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    assert read_json(tmp_path / "file") is None


@pytest.mark.slow_unit
@pytest.mark.parametrize("value", [*VALUES, *ODD_LAYERS])
def test_any_json_in_the_record_of_a_layer_is_a_layer_that_is_not_there(value: object, store: Store) -> None:
    diff_id = LAYER["diff_id"]
    assert isinstance(diff_id, str)
    store.layer_path(diff_id).mkdir()
    write_json(store.layer_path(diff_id) / "layer.json", value)
    (store.root / "packs" / f"{'1' * 64}.v{PACK_VERSION}").touch()
    for shared in (value, {"layer": value}, {"layer": LAYER, "pack": value, "folders": []}):
        write_json(store.root / "packs" / f"{'1' * 64}.v{PACK_VERSION}.layer.json", shared)
        with contextlib.suppress(EngineError):
            assert store.layer(diff_id).diff_id == diff_id


def test_a_good_blob_in_the_place_of_a_corrupt_one_remains(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process found the corrupt one at the same time, and fetched it first."""
    sha256 = hashlib.sha256(b"good").hexdigest()
    blob = store.blob(sha256)

    def read_meanwhile(path: Path) -> str:
        found = stored_digest(path)
        blob.unlink()
        (store.tmp / "new").write_bytes(b"good")
        (store.tmp / "new").rename(blob)
        return found

    blob.write_bytes(b"corrupt")
    with monkeypatch.context() as patch, pytest.raises(InputError, match="corrupt blob"):
        patch.setattr("envbuild.core.store.store.stored_digest", read_meanwhile)
        store.check_blob(sha256)
    store.check_blob(sha256)
    blob.write_bytes(b"corrupt")
    with pytest.raises(InputError, match="corrupt blob"):
        store.check_blob(sha256)
    assert not blob.exists()


def test_a_shared_layer_names_a_pack_of_its_own(store: Store) -> None:
    record = LayerRecord(f"sha256:{'1' * 64}", 1, 1, "x")
    layer = SharedLayer(record, f"{'1' * 64}.v{PACK_VERSION}", (("opt", 0o755, 0, 0, 5, {"user.a": "b"}),))
    packs = store.root / "packs"
    layer.write(packs)
    assert SharedLayer.read(packs, record.diff_id) is None  # the pack is missing
    (packs / layer.pack).touch()
    assert SharedLayer.read(packs, record.diff_id) == layer
    assert store.layer(record.diff_id) == record and store.find_layer(record.diff_id) == record
    assert not store.has_tree(record.diff_id)
    earlier = f"{'1' * 64}.v{PACK_VERSION - 1}"
    (packs / earlier).touch()
    odd_names = (f"{'1' * 64}.{sign}.v{PACK_VERSION}" for sign in ("\0", "\ud800", "\x1b", "x" * 300))
    for name in (f"{'2' * 64}.v{PACK_VERSION}", f"{'1' * 64}/../../units/x", "/etc/passwd", earlier, *odd_names):
        replace(layer, pack=name).write(packs)
        assert SharedLayer.read(packs, record.diff_id) is None
    for odd in (
        ("opt", 0o755, 1 << 40, 0, 5, {}),
        ("opt", 0o755, 0, 0, 5, {"user.\0": ""}),
        ("\u0100", 0, 0, 0, 0, {}),
    ):
        replace(layer, folders=(odd,)).write(packs)  # of another member of the group: no folder can be made so
        assert SharedLayer.read(packs, record.diff_id) is None


def test_a_lock_is_exclusive_or_shared(store: Store) -> None:
    class Busy(Exception):
        pass

    def busy() -> None:
        raise Busy

    for first, second, free in ((False, False, False), (True, False, False), (False, True, False), (True, True, True)):
        with store.lock("name", shared=first), store.lock("other", busy):
            assert is_locked(store.root / "locks/name")
            with contextlib.nullcontext() if free else pytest.raises(Busy), store.lock("name", busy, shared=second):
                assert free
        assert not is_locked(store.root / "locks/name")
    assert not is_locked(store.root / "locks/none")


def test_a_file_that_another_user_hides_may_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    (tmp_path / "alive").touch()
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert is_locked(tmp_path / "alive")


def test_a_work_folder_is_removed_and_only_one_without_its_process_is_abandoned(store: Store) -> None:
    dead = store.tmp / "1-0000dead"
    dead.mkdir()
    (dead / "alive").touch()
    (store.tmp / "file").touch()
    with store.workdir() as path, store.workdir() as other:
        (path / "deep").mkdir()
        assert path != other and path.parent == store.tmp
        assert list(store.abandoned()) == [dead]
    assert not path.exists()


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_json(path, {"b": 1, "a": [None]})
    assert read_json(path) == {"a": [None], "b": 1}
    assert path.stat().st_mode & 0o777 == 0o644
    with pytest.raises(ZeroDivisionError):
        write_atomic(path, lambda file: file.write(b"half") // 0)
    assert read_json(path) == {"a": [None], "b": 1}
    assert list(tmp_path.iterdir()) == [path]
    write_atomic(path, lambda file: file.write(b'{"cut'), 0o755, durable=False)
    assert (read_json(path), path.stat().st_mode & 0o777, read_json(tmp_path / "none")) == (None, 0o755, None)
    assert stamp(path) == [5, path.stat().st_mtime_ns]


def test_a_private_file_is_at_no_moment_readable_for_others(tmp_path: Path) -> None:
    path = tmp_path / "file"
    modes: list[int] = []
    path.touch(mode=0o644)
    umask = os.umask(0)
    try:
        write_atomic(path, lambda file: modes.append(os.fstat(file.fileno()).st_mode & 0o777), 0o600)
        write_private(path, "secret")
    finally:
        os.umask(umask)
    assert [*modes, path.stat().st_mode & 0o777] == [0o600, 0o600]
    assert path.read_text() == "secret"


def test_names_in_the_store(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.log("ucx", "0123456789abcdef") == tmp_path / "logs/ucx-0123456789ab.log"
    assert store.part("a") == tmp_path / "partial/a.part"
    assert store.layer_tree("sha256:ab") == tmp_path / "layers/ab/tree"


@pytest.mark.slow_unit
def test_a_flipped_bit_of_a_record_is_no_other_record(store: Store) -> None:
    """The unit's name in it is a part of the image: it would get another digest."""
    record = UnitRecord("a" * 64, "ucx", None, (("x.whl", add(store, "wheel")),), 2.5, {"seccomp": True})
    store.record_unit(record)
    path = store.root / "units" / f"{record.key}.json"
    content = path.read_bytes()
    for position in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << position % 8
        path.write_bytes(damaged)
        assert store.unit(record.key) in (None, record), f"bit {position % 8} of byte {position // 8}"
