"""Files that left an archive come from its snapshot service: at the time of the lock, checked, one at a time."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import InputError
from envbuild.core.store.store import Store
from envbuild.lock.fetch import fetch
from envbuild.lock.model import DebianFile, Lock, SourceFile
from envbuild.lock.snapshots import archive_dates, snapshot_places
from envbuild.net import host_config
from envbuild.net.site import Site
from tests.support.fetching import deb
from tests.support.home_files import homes
from tests.support.lock_server import Answers, serve, sha256
from tests.support.snapshot_server import Snapshots, snapshot_service
from tests.support.stored_inputs import lock

pytestmark = pytest.mark.unit
RELEASE = "2026-03-14T09:31:00Z"  # of the older point release
NOW = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def archive() -> Iterator[Answers]:
    with serve() as answers:
        yield answers


@pytest.fixture
def service() -> Iterator[Snapshots]:
    with snapshot_service() as answers:
        yield answers


@contextmanager
def debian(folder: Path, archive: Answers, service: Snapshots | SimpleNamespace) -> Iterator[None]:
    """Make `archive` the one of this host's apt, and `service` its public snapshot service."""
    snapshot = f"{service.url}/archive/debian/{{time}}"
    entry = {"origin": "debian:", "address": archive.url, "snapshot": snapshot}
    with homes(folder, entry), pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_config, "debian_archives", lambda: {"debian:": (archive.url,)})
        yield


def old_lock(*files: DebianFile | SourceFile) -> Lock:
    return replace(lock(*files), releases={"debian:trixie/main": RELEASE})


def package(number: int) -> tuple[DebianFile, str, bytes]:
    content, path = f"package {number}".encode(), f"pool/main/p/p{number}/p{number}_1.0_amd64.deb"
    return deb(content, f"p{number}", path), path, content


def run(wanted: Lock, store: Store, *, wait: float = 0.001, **more: object) -> None:
    fetch(wanted, store, Site(store.root, **more), SilentReporter(), pause=wait)  # type: ignore[arg-type]


def test_a_lock_of_an_older_point_release(store: Store, archive: Answers, service: Snapshots, tmp_path: Path) -> None:
    """Ten packages, of which the archive still has one. The import of before the Release file lacks them."""
    made = [package(number) for number in range(10)]
    archive.files[f"/{made[0][1]}"] = made[0][2]
    service.imports = {
        "20260314T030000Z": {},
        "20260314T150000Z": {path: content for _, path, content in made},
        "20260901T030000Z": {},
    }
    service.busy = [429, 503, 0]
    with debian(tmp_path / "homes", archive, service):
        run(old_lock(*(file for file, _, _ in made)), store)
    assert all(store.has_blob(file.sha256) for file, _, _ in made)
    assert not any("p0_1.0" in path for path in service.requested)  # only those that the archive answered 404 for
    assert service.most == 1
    assert {path.split("/")[3] for path in service.requested} == {"20260314T213100Z", "20260314T150000Z"}


def test_a_snapshot_host_that_is_not_reached_is_tried_for_one_file_alone(
    store: Store, archive: Answers, tmp_path: Path
) -> None:
    """Three files at three times each, and one series of attempts with short pauses."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        gone = SimpleNamespace(url=f"http://127.0.0.1:{taken.getsockname()[1]}")
        with debian(tmp_path / "homes", archive, gone), pytest.raises(InputError) as caught:
            began = time.monotonic()
            run(old_lock(*(package(number)[0] for number in range(3))), store, wait=0.5)
    assert time.monotonic() - began < 0.5 * (1 + 2 + 4) + 3
    text = str(caught.value)
    assert text.count("connection refused (4 attempts)") == 1
    assert text.count("given up, because connection refused") == 8


def test_a_snapshot_with_other_content_is_refused(
    store: Store, archive: Answers, service: Snapshots, tmp_path: Path
) -> None:
    file, path, content = package(1)
    service.imports = {"20260314T150000Z": {path: content[:-1] + b"x"}}
    with debian(tmp_path / "homes", archive, service), pytest.raises(InputError, match="digest mismatch"):
        run(old_lock(file), store)
    assert not store.has_blob(file.sha256)


def test_a_failing_archive_is_not_replaced_by_snapshots(
    store: Store, archive: Answers, service: Snapshots, tmp_path: Path
) -> None:
    """Only a file that the archive answers 404 for left it."""
    file, path, content = package(1)
    archive.faults[f"/{path}"] = [403]
    archive.files[f"/{path}"] = content
    service.imports = {"20260314T150000Z": {path: content}}
    with debian(tmp_path / "homes", archive, service), pytest.raises(InputError, match="HTTP 403"):
        run(old_lock(file), store)
    assert service.requested == []


@pytest.mark.parametrize("more", [{"use_host": False}, {}])
def test_a_site_with_mirrors_of_its_own_uses_no_snapshots(
    more: dict[str, bool], store: Store, archive: Answers, service: Snapshots, tmp_path: Path
) -> None:
    file, path, content = package(1)
    service.imports = {"20260314T150000Z": {path: content}}
    with debian(tmp_path / "homes", archive, service), pytest.raises(InputError, match="is not available"):
        run(old_lock(file), store, mirrors={"debian:": (archive.url,)}, **more)
    assert service.requested == []


def test_a_source_of_the_pool(store: Store, archive: Answers, service: Snapshots, tmp_path: Path) -> None:
    """A recipe pins it by digest, so it may have left the pool long before the lock was made."""
    content, name = b"original", "pytorch_2.6.0+dfsg.orig.tar.xz"
    source = SourceFile(name, f"debian:pool/main/p/pytorch/{name}", sha256(content))
    service.imports = {"20250101T000000Z": {f"pool/main/p/pytorch/{name}": content}, "20260101T000000Z": {}}
    with debian(tmp_path / "homes", archive, service):
        run(old_lock(source), store)
    assert store.has_blob(source.sha256)


def places(
    file: DebianFile, dates: dict[str, str], folder: Path, entry: dict[str, object], **more: object
) -> list[str]:
    with homes(folder, {"address": "http://archive.example", **entry}):
        return snapshot_places(Site(folder, **more), file, dates, NOW)  # type: ignore[arg-type]


def test_times_of_a_lock_without_dates_of_archives(tmp_path: Path) -> None:
    """Locks before `releases` have the date of the main archive alone; updates of security are newer."""
    file = replace(package(1)[0], archive="debian-security:trixie-security/main")
    wanted = replace(lock(file), epoch=int(datetime(2026, 9, 12, tzinfo=UTC).timestamp()))
    entry: dict[str, object] = {"origin": "debian-security:", "snapshot": "http://s.example/{time}"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_config, "debian_archives", dict)
        found = places(file, archive_dates(wanted), tmp_path / "homes", entry)
    times = [place.split("/")[3] for place in found]
    assert times == ["20260912T120000Z", "20260919T000000Z", "20260926T000000Z", "20261012T000000Z", "20261027T000000Z"]


def test_a_snapshot_service_begins_at_a_day(tmp_path: Path) -> None:
    file = replace(package(1)[0], archive="ubuntu:focal/main")
    entry: dict[str, object] = {
        "origin": "ubuntu:", "snapshot": "http://s.example/{time}", "snapshot_since": "2023-03-01", "arch": ["amd64"],
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_config, "debian_archives", dict)
        for date, some in (("2020-04-23T00:00:00Z", False), ("2023-04-23T00:00:00Z", True)):
            dates = {"ubuntu:focal/main": date, "": date}
            assert bool(places(file, dates, tmp_path / "homes", entry)) is some
            other = replace(file, file="p1_1.0_arm64.deb")
            assert places(other, dates, tmp_path / "homes", entry) == []
