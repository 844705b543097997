"""Other users beside a store, as the kernel sees them: members of the group that shares it, and users outside of it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import EngineError, InputError
from envbuild.core.store import lock_holder
from envbuild.core.store.access import check_readable
from envbuild.core.store.gc import collect
from envbuild.core.store.permissions import move_into_store
from envbuild.core.store.records import read_record, record_path, write_record
from envbuild.core.store.store import Store
from envbuild.export.progress_list import list_exports
from envbuild.lock.model import SourceFile
from envbuild.lock.pending_archives import read_pending, record_pending
from envbuild.verify.store_check import check_store
from tests.support.as_user import open_folder, run_as

pytestmark = [pytest.mark.unit, pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")]

GROUP, ONE, TWO, OUTSIDE = 50_000, 50_001, 50_002, 50_003


def as_member(uid: int, function: Callable[[], object]) -> object:
    return run_as(uid, uid, (GROUP,), function)


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as path:
        yield path


def test_a_link_of_another_user_is_not_on_the_way_to_a_store(folder: Path) -> None:
    """Its owner could turn it while a command runs."""
    for uid, name in ((OUTSIDE, "theirs"), (ONE, "own")):
        (folder / name).symlink_to(folder / "real")
        os.chown(folder / name, uid, -1, follow_symlinks=False)
    (folder / "real").mkdir()
    os.chown(folder / "real", ONE, ONE)
    assert as_member(ONE, lambda: str(Store.open(folder / "own/store").root)) == str(folder / "own/store")

    def refused() -> str:
        try:
            Store.open(folder / "theirs/store")
        except EngineError as error:
            return str(error)
        return ""

    assert str(as_member(ONE, refused)).startswith(f"a link of another user is on the way to the store {folder}")


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


def replace_by_link(path: Path, target: Path) -> str:
    """Try to put a link in the place of a folder; return what happened."""
    try:
        path.rename(path.with_name("moved"))
        path.symlink_to(target)
    except OSError as error:
        return error.strerror or ""
    return "replaced"


def test_no_member_puts_a_link_in_the_place_of_a_shared_folder(shared: Path, home: Path) -> None:
    """Also not between the check of the folders and their use, for which a member waits with a lock."""
    folders = [shared / name for name in ("blobs", "blobs/sha256", "packs", "units", "images", "locks")]
    for path in folders:
        assert as_member(ONE, lambda path=path: replace_by_link(path, home)) == "Operation not permitted"
    removed, _ = collect(Store.open(shared), SilentReporter(), dry_run=False, everything=True)
    assert removed == [] and sorted(path.name for path in home.iterdir()) == ["file", "folder"]


def test_members_use_the_shared_folders(shared: Path) -> None:
    def add() -> None:
        store = Store.open(shared)
        (store.tmp / "new").write_text("content")
        assert store.has_blob(store.add_blob(store.tmp / "new"))

    as_member(ONE, add)
    as_member(TWO, add)


def test_an_older_store_of_a_group_is_repaired_by_its_owner_once(shared: Path) -> None:
    (shared / "blobs").chmod(0o2775)
    with pytest.raises(AssertionError, match=r"could replace what is in .*/blobs\n.*root, types: .*store check"):
        as_member(ONE, lambda: Store.open(shared))
    lines: list[str] = []
    Store.open(shared, lines.append)
    assert len(lines) == 1 and "blobs/" in lines[0] and (shared / "blobs").stat().st_mode & 0o7777 == 0o3775
    Store.open(shared, lines.append)
    as_member(ONE, lambda: Store.open(shared))
    assert len(lines) == 1


def test_a_folder_that_was_replaced_in_an_older_store_is_refused(shared: Path, home: Path) -> None:
    (shared / "blobs").chmod(0o2775)
    assert as_member(ONE, lambda: replace_by_link(shared / "blobs/sha256", home)) == "replaced"
    with pytest.raises(EngineError, match="sha256 is not a folder"):
        Store.open(shared)
    assert sorted(path.name for path in home.iterdir()) == ["file", "folder"]


def test_a_store_in_which_every_user_may_replace_folders_is_refused(folder: Path, home: Path) -> None:
    root = folder / "open"
    Store.open(root)
    root.chmod(0o777)
    with pytest.raises(EngineError, match="every user may write the store") as refused:
        Store.open(root)
    assert refused.value.hint == f"chmod -R o-w {root}"
    assert run_as(OUTSIDE, OUTSIDE, (), lambda: replace_by_link(root / "packs", home)) == "replaced"
    root.chmod(0o755)
    with pytest.raises(EngineError, match=f"packs belongs to the user {OUTSIDE}"):
        Store.open(root)
    (root / "packs").unlink()
    shutil.rmtree(root / "moved")
    Store.open(root)
    (root / "blobs").chmod(0o777)
    with pytest.raises(EngineError, match=r"every user may write .*/blobs"):
        Store.open(root)


@pytest.mark.parametrize("closed", [".", ".."])
def test_a_store_that_is_closed_to_this_user_is_named_with_its_owner(closed: str, folder: Path) -> None:
    root = folder / "above" / "store"
    Store.open(root)
    check_readable(root)
    place = (root / closed).resolve()
    place.chmod(0o700)
    what = "it" if place == root else place
    for use in (lambda: check_readable(root), lambda: list_exports(root), lambda: Store.open(root)):
        with pytest.raises(AssertionError, match=f"cannot be read: {what} belongs to root, and is closed to you\\n"):
            run_as(OUTSIDE, OUTSIDE, (), use)
    check_readable(folder / "none" / "there")


def test_a_store_on_a_disk_like_tmp_has_folders_of_its_user_alone(folder: Path, home: Path) -> None:
    root = folder / "disk"
    root.mkdir()
    root.chmod(0o1777)
    store = Store.open(root)
    assert run_as(OUTSIDE, OUTSIDE, (), lambda: replace_by_link(root / "packs", home)) == "Operation not permitted"
    run_as(OUTSIDE, OUTSIDE, (), lambda: (root / "uv").symlink_to(home))
    for use in (lambda: store.own_folder("uv"), lambda: Store.open(root)):
        with pytest.raises(EngineError, match=f"uv belongs to the user {OUTSIDE}"):
            use()


@pytest.mark.parametrize("name", ["tmp", "layers", "logs", "partial"])
def test_a_work_folder_in_a_shared_store_that_belongs_to_another_member_is_refused(name: str, shared: Path) -> None:
    """As one in a folder of this user that was open once."""
    as_member(ONE, lambda: Store.open(shared))
    work = shared / f"user-{ONE}" / name
    work.rmdir()
    work.mkdir()
    shutil.chown(work, TWO)
    work.chmod(0o777)
    with pytest.raises(AssertionError, match=f"{name} belongs to the user {TWO}"):
        as_member(ONE, lambda: Store.open(shared))


def test_no_user_takes_the_store_of_another_one(folder: Path) -> None:
    root = folder / "theirs"
    Store.open(root)
    shutil.chown(root, ONE)
    with pytest.raises(EngineError, match=f"belongs to the user {ONE}"):
        Store.open(root)
    with pytest.raises(AssertionError, match=f"belongs to the user {ONE}, who could make your commands"):
        run_as(OUTSIDE, OUTSIDE, (), lambda: Store.open(root))


@pytest.mark.parametrize("umask", [0, 0o002])
def test_a_new_store_is_written_by_its_owner_alone_with_any_umask(umask: int, folder: Path) -> None:
    before = os.umask(umask)
    try:
        store = Store.open(folder / "new" / "store")
        (store.own_folder("git") / "made").touch()
        (store.tmp / "made").touch()
        move_into_store(store.tmp / "made", store.root / "packs" / "made")
    finally:
        os.umask(before)
    Store.open(store.root)
    paths = [store.root.parent, store.root, *store.root.rglob("*")]
    reachable = [path for path in paths if path.stat().st_mode & 0o022 and path.parent.stat().st_mode & 0o011]
    assert reachable == [] and not store.is_shared


def test_a_store_that_an_umask_left_open_to_a_group_is_closed_once(folder: Path) -> None:
    """It has no setgid bit, which docs/sites.md sets for a group."""
    root = Store.open(folder / "store").root
    for path in (root, root / "blobs", root / "packs"):
        shutil.chown(path, group=GROUP)
        path.chmod(0o1775)
    lines: list[str] = []
    Store.open(root, lines.append)
    Store.open(root, lines.append)
    assert len(lines) == 1 and "could write it" in lines[0]
    assert {path.stat().st_mode & 0o7777 for path in (root, root / "blobs", root / "packs")} == {0o755}
    root.chmod(0o775)
    assert as_member(ONE, lambda: replace_by_link(root / "packs", folder)) == "replaced"
    with pytest.raises(EngineError, match=f"packs belongs to the user {ONE}"):
        Store.open(root)


def test_a_record_of_another_member_names_files_of_the_store_alone(shared: Path, home: Path) -> None:
    store, secret = Store.open(shared), home / "file"
    artifact = shared / "artifacts" / "app-1.sqsh"
    artifact.write_text("squashfs")
    record = record_path(store, ["app"])
    write_record(record, {"artifact": str(artifact), "evidence": "", "layers": []})
    assert "/" not in json.loads(record.read_text())["made"]["artifact"]
    status = secret.stat()

    def plant(**made: str) -> None:
        value = {"made": {"layers": [], **made}, "stat": [status.st_size, status.st_mtime_ns]}
        record.unlink()
        record.write_text(json.dumps({**value, "holds": {"units": [], "blobs": []}}))

    as_member(ONE, lambda: plant(artifact=str(secret)))
    assert read_record(record) is None
    (shared / "artifacts" / "file").symlink_to(secret)
    assert read_record(record) is None, "a link to a file of the reader"
    as_member(ONE, lambda: plant(artifact="../../home/file"))
    assert read_record(record) is None
    as_member(ONE, lambda: plant(artifact=str(artifact), evidence="/etc/passwd"))
    os.utime(artifact, ns=(status.st_mtime_ns, status.st_mtime_ns))
    artifact.write_bytes(secret.read_bytes())
    os.utime(artifact, ns=(status.st_mtime_ns, status.st_mtime_ns))
    found = read_record(record)
    assert found and (found["artifact"], found["evidence"]) == (str(artifact), str(artifact.with_name("passwd")))


@contextmanager
def in_time() -> Iterator[None]:
    """End what waits for ever."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(30)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.slow_unit
@pytest.mark.parametrize("kind", ["fifo", "endless", "link", "folder", "closed"])
def test_what_a_member_put_in_the_place_of_a_file_stops_no_command(kind: str, shared: Path, home: Path) -> None:
    store, key = Store.open(shared), "a" * 64
    places = [shared / name for name in ("images", "units", "packs", "blobs/sha256", "control")]
    paths = [place / f"{key}{end}" for place in places for end in ("", ".json", ".layer.json")]
    paths = [path for path in paths if path.parent.name != "images" or path.name == f"{key}.json"]  # others remain

    def plant(path: Path) -> None:
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "closed":
            path.touch(0)
        else:
            path.symlink_to("/dev/zero" if kind == "endless" else home / "file")

    for path in paths:
        as_member(ONE, lambda path=path: plant(path))
    with in_time():
        assert store.unit(key) is None and not store.find_layer(f"sha256:{key}")
        assert store.has_blob(key) == (kind == "closed")
        with pytest.raises(InputError, match="corrupt blob"):
            store.read_document(key)
        assert not os.path.lexists(store.blob(key)), "the next run fetches it again"
        damaged = {
            str(item.path.relative_to(shared)) for item in check_store(store, SilentReporter(), repair=True).damaged
        }
        assert {f"units/{key}.json", f"images/{key}.json"} <= damaged
        collect(store, SilentReporter(), dry_run=False, everything=True)
    assert [path for path in paths if os.path.lexists(path)] == []
    assert (home / "file").read_text() == "mine"


def test_a_file_that_a_member_closed_is_reported_and_fetched_again(shared: Path) -> None:
    digest = hashlib.sha256(b"content").hexdigest()
    blob = shared / "blobs/sha256" / digest

    def close() -> None:
        blob.write_bytes(b"content")
        blob.chmod(0o600)

    def check() -> list[str]:
        return [item.path.name for item in check_store(Store.open(shared), SilentReporter(), repair=False).damaged]

    as_member(ONE, close)
    assert as_member(TWO, check) == [digest]
    with pytest.raises(AssertionError, match="corrupt blob in the store"):
        as_member(TWO, lambda: Store.open(shared).check_blob(digest))
    assert not blob.exists(), "the next run fetches it again"


def take_lock(path: Path) -> str:
    """Try to hold a lock, with the right to read alone; return what happened."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.strerror or ""
    return "held"


def test_only_users_of_a_store_can_hold_its_locks(shared: Path, folder: Path) -> None:
    before = os.umask(0o022)
    try:
        alone = Store.open(folder / "alone")
        for store in (alone, Store(shared)):
            with store.lock("gc"):
                path = store.root / "locks/gc"
            assert run_as(OUTSIDE, OUTSIDE, (), lambda path=path: take_lock(path)) == "Permission denied"
            (store.root / "locks").chmod(0o755 if store is alone else 0o2775)  # of an older envbuild
            path.chmod(0o664)
            assert run_as(OUTSIDE, OUTSIDE, (), lambda path=path: take_lock(path)) == "held"
            lines: list[str] = []
            Store.open(store.root, lines.append)
            Store.open(store.root, lines.append)
            assert len(lines) == 1 and "could hold its locks" in lines[0]
            assert run_as(OUTSIDE, OUTSIDE, (), lambda path=path: take_lock(path)) == "Permission denied"
    finally:
        os.umask(before)
    assert as_member(ONE, lambda: take_lock(shared / "locks/gc")) == "held"


def test_the_process_that_holds_a_lock_is_named(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_holder, "PATIENCE", 0.0)
    path = shared / "locks" / "mine"
    path.touch(0o644)
    ready, hold = os.pipe(), os.pipe()
    file = path.open("rb")
    child = os.fork()
    if not child:
        os.setresuid(ONE, ONE, ONE)
        fcntl.flock(file, fcntl.LOCK_EX)
        os.write(ready[1], b"1")
        os.read(hold[0], 1)
        os._exit(0)
    file.close()  # held by the child alone from now on
    os.read(ready[0], 1)
    lines: list[str] = []

    def report(text: str) -> None:
        lines.append(text)
        os.write(hold[1], b"1")

    with in_time(), Store(shared, report).lock("mine"):
        pass
    os.waitpid(child, 0)
    assert lines == [f"waiting for the lock 'mine' of this store, held by process {child} of the user {ONE}"]


def test_no_member_decides_what_another_one_locks(shared: Path) -> None:
    """Archives of an earlier lock that failed are used by the next one with their digest."""
    blob = "b" * 64
    (shared / "blobs/sha256" / blob).touch()

    def record() -> None:
        record_pending(Store.open(shared), [SourceFile("app.tar", "github:a/b@1", blob, 1)])

    as_member(ONE, record)
    assert as_member(ONE, lambda: list(read_pending(Store.open(shared)))) == ["app.tar"]
    assert as_member(TWO, lambda: list(read_pending(Store.open(shared)))) == []
    as_member(TWO, record)
