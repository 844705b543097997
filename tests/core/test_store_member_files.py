"""Files and locks that another member of a group put into a shared store."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import InputError
from envbuild.core.ownership import user_name
from envbuild.core.store import lock_holder
from envbuild.core.store.build_records import PACK_VERSION
from envbuild.core.store.gc import collect
from envbuild.core.store.records import read_record, record_path, write_record
from envbuild.core.store.store import Store
from envbuild.lock.model import SourceFile
from envbuild.lock.pending_archives import read_pending, record_pending
from envbuild.net import host_config, public_homes  # noqa: F401 - other users cannot read the interpreter of root
from envbuild.net.site import Site
from envbuild.verify.store_check import check_store
from tests.support.as_user import run_as
from tests.support.store_members import ONE, OUTSIDE, TWO, as_member

pytestmark = [pytest.mark.unit, pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")]


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
    own = store.own / "artifacts" / "passwd"
    assert found and (found["artifact"], found["evidence"]) == (str(artifact), str(own))


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
    paths = [place / f"{key}{end}" for place in places for end in ("", ".json", f".v{PACK_VERSION}.layer.json")]
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


def test_a_row_that_the_kernel_lists_twice_is_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two pages of the list, a lock of another process moved the rows."""
    locked, rows = tmp_path / "locked", tmp_path / "locks"
    locked.touch()
    status = locked.stat()
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    row = f"FLOCK  ADVISORY  WRITE {os.getpid()} {place} 0 EOF"
    rows.write_text(f"1: {row}\n1: -> {row}\n2: POSIX  ADVISORY  READ 1 00:01:1 0 EOF\n3: {row}\n")
    monkeypatch.setattr(lock_holder, "LOCKS", rows)
    with locked.open("rb") as file:
        assert lock_holder.find_holder(file.fileno()) == f"process {os.getpid()} of {user_name(os.getuid())}"


def test_no_member_decides_what_another_one_locks(shared: Path) -> None:
    """Archives of an earlier lock that failed are used by the next one with their digest."""
    blob, site = "b" * 64, Site(shared, use_host=False)
    (shared / "blobs/sha256" / blob).touch()

    def record() -> None:
        record_pending(Store.open(shared), site, [SourceFile("app.tar", "github:a/b@1", blob, 1)])

    as_member(ONE, record)
    assert as_member(ONE, lambda: list(read_pending(Store.open(shared), site))) == ["app.tar"]
    assert as_member(TWO, lambda: list(read_pending(Store.open(shared), site))) == []
    as_member(TWO, record)
