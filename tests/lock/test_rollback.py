"""Archives that go back in time: a mirror that replays an old state, rightly signed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.lock.lockfile import dump_lock, parse_lock
from envbuild.lock.model import lock_digest
from envbuild.lock.request import LockRequest, UnitRequest
from envbuild.lock.rollback import rollback_warnings
from envbuild.net.site import Site
from tests.support.debian_archive import RELEASED, Signer, publish, stanza
from tests.support.lock_server import wheel
from tests.support.lock_site import MARKS, make, make_site

pytestmark = MARKS

REQUEST = LockRequest(
    "demo",
    "debian:13",
    "debian:13",
    "amd64",
    "3.13",
    {
        "base": UnitRequest(),
        "debian": UnitRequest(debian=("pkone", "pktwo")),
        "venv": UnitRequest(python=("demo",)),
    },
)


def publish_state(folder: Path, key: Signer, version: str, released: int) -> None:
    usual = (stanza("dash", essential=True), stanza("apt"), stanza("ca-certificates"))
    stanzas = (*usual, stanza("pkone", version), stanza("pktwo", "1.0"))
    publish(folder / "debian", "trixie", stanzas, key, released=released)


def replay(site: Site) -> None:
    """Forget the lists, as a new store does: apt itself refuses an older Release file than the one that it has."""
    shutil.rmtree(site.store / "apt")


@pytest.fixture
def site(tmp_path: Path, key: Signer) -> Site:
    demo = wheel(tmp_path / "wheels", "demo", "1.0")
    torch = wheel(tmp_path / "wheels", "torch", "1.0")
    return make_site(tmp_path, key, (), [demo], torch)


@pytest.mark.slow_unit
def test_an_archive_that_replays_an_old_state_is_reported(site: Site, key: Signer, tmp_path: Path) -> None:
    publish_state(tmp_path, key, "2.0", RELEASED + 86400)
    first = make(site, REQUEST)
    assert first.releases["debian:trixie/main"] == "2026-09-22T14:13:20Z"
    replay(site)
    publish_state(tmp_path, key, "1.0", RELEASED)
    second = make(site, REQUEST, first, refresh=True)
    assert second.releases["debian:trixie/main"] == "2026-09-21T14:13:20Z"
    (line,) = rollback_warnings(first, second)
    for word in ("debian:trixie/main", "pkone 2.0 → 1.0", "2026-09-22", "2026-09-21"):
        assert word in line
    assert "pktwo" not in line
    assert rollback_warnings(second, first) == rollback_warnings(first, first) == []


@pytest.mark.slow_unit
def test_a_date_alone_or_a_package_alone_is_reported(site: Site, key: Signer, tmp_path: Path) -> None:
    publish_state(tmp_path, key, "2.0", RELEASED)
    lock = make(site, REQUEST)
    dates = dict.fromkeys(lock.releases, "2000-01-01T00:00:00Z")
    assert len(rollback_warnings(lock, replace(lock, releases=dates))) == len(lock.releases) == 2
    file = lock.debian["pkone_2.0_amd64.deb"]
    older = replace(lock, debian={**lock.debian, file.file: replace(file, version="1:1")})
    (line,) = rollback_warnings(older, replace(lock, releases={}))
    assert "pkone 1:1 → 2.0" in line
    assert rollback_warnings(older, replace(lock, arch="arm64")) == []
    demo = lock.python_files["demo-1.0-py3-none-any.whl"]
    newer = replace(lock, python_files={demo.file: replace(demo, version="1.10")})
    assert "demo 1.10 → 1.0" in rollback_warnings(newer, lock)[0]
    assert rollback_warnings(replace(newer, inputs="0"), lock) == []


@pytest.mark.slow_unit
def test_dates_are_written_and_are_no_part_of_the_digest(site: Site, key: Signer, tmp_path: Path) -> None:
    publish_state(tmp_path, key, "2.0", RELEASED)
    lock = make(site, REQUEST)
    bare = replace(lock, releases={})
    assert parse_lock(dump_lock(lock), Path("demo.lock")) == lock
    assert parse_lock(dump_lock(bare), Path("demo.lock")) == bare and "releases:" not in dump_lock(bare)
    assert lock_digest(lock) == lock_digest(bare)
