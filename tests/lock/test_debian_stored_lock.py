"""The Debian half of a lock in the store: used while the request and the archives are the same ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.distributions import find_distribution
from envbuild.core.store.store import Store
from envbuild.lock.debian.apt import Apt
from envbuild.lock.debian.debian_request import DebianLock, DebianRequest
from envbuild.lock.debian.resolve import resolve
from envbuild.net.site import Site
from tests.support.debian_archive import RELEASED, Signer, publish, stanza
from tests.support.private_server import serve_private

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(not shutil.which("apt-get"), reason="apt-get is not installed"),
    pytest.mark.skipif(not shutil.which("gpg"), reason="gpg is not installed"),
]
BASE = (stanza("dash", essential=True), stanza("apt"))
REQUEST = DebianRequest(find_distribution("debian:13"), "amd64", {"base": (), "debian": ("hello",)})


class Desk:
    """A site with an archive; `installs`: the calls of apt-get that resolve."""

    def __init__(self, folder: Path, key: Signer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.key, self.installs = folder, key, 0
        self.publish("1.0")
        mirrors = {"debian:": (str(folder / "debian"),)}
        self.site = Site(folder / "store", mirrors=mirrors, use_host=False, debian_keyring=key.keyring)
        get = Apt.get

        def counting(apt: Apt, *arguments: str, **options: Any) -> str:
            self.installs += "install" in arguments
            return get(apt, *arguments, **options)

        monkeypatch.setattr(Apt, "get", counting)

    def publish(self, version: str, days: int = 0) -> None:
        for suite, stanzas in (("trixie", (*BASE, stanza("hello", version))), ("trixie-updates", ())):
            publish(self.folder / "debian", suite, stanzas, self.key, released=RELEASED + days)

    def resolve(self, request: DebianRequest = REQUEST) -> tuple[DebianLock, bool]:
        """Return the lock, and whether apt resolved it."""
        before = self.installs
        found = resolve(request, self.site, Store.open(self.site.store), SilentReporter())
        return found, self.installs > before


@pytest.fixture
def desk(tmp_path: Path, key: Signer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    yield Desk(tmp_path, key, monkeypatch)


def version(lock: DebianLock) -> str:
    return next(file.version for file in lock.units["debian"])


def test_the_same_request_is_resolved_once_also_with_its_own_versions(desk: Desk) -> None:
    first, resolved = desk.resolve()
    assert resolved
    assert desk.resolve() == (first, False)
    assert desk.resolve(replace(REQUEST, prefer={"hello": "1.0", "dash": "1.0", "apt": "1.0"})) == (first, False)
    assert desk.resolve(replace(REQUEST, where={"debian": "x.yaml:1"})) == (first, False)


def test_a_stored_result_has_the_order_of_the_request(desk: Desk) -> None:
    """The lock file has it, too."""
    request = replace(REQUEST, units={"base": (), "venv": (), "debian": ("hello",), "build-x": ("hello",)})
    first, _ = desk.resolve(request)
    again, resolved = desk.resolve(request)
    assert not resolved and list(again.units) == list(first.units) == list(request.units)
    assert list(again.requested) == list(first.requested)


@pytest.mark.parametrize(
    "changes",
    [{"units": {"base": (), "debian": ()}}, {"prefer": {"hello": "0.9"}}, {"replaces": {"debian": ("ghost=1",)}}],
)
def test_another_request_is_resolved(desk: Desk, changes: dict[str, Any]) -> None:
    desk.resolve()
    assert desk.resolve(replace(REQUEST, **changes))[1]


def test_an_archive_that_moved_on_is_read(desk: Desk) -> None:
    desk.resolve()
    desk.publish("2.0", days=1)
    newer, resolved = desk.resolve(replace(REQUEST, refresh=True))
    assert (version(newer), resolved) == ("2.0", True)
    assert desk.resolve() == (newer, False)


def test_the_lists_of_a_folder_are_read_as_they_are_now(desk: Desk) -> None:
    """Lists of a server are those of the last hour."""
    desk.resolve()
    desk.publish("2.0", days=1)
    newer, resolved = desk.resolve()
    assert (version(newer), resolved) == ("2.0", True)


def test_the_lists_of_a_server_are_those_of_the_hour(desk: Desk) -> None:
    with serve_private(desk.folder / "debian") as server:
        desk.site = replace(desk.site, mirrors={"debian:": (server.url,)})
        first, _ = desk.resolve()
        desk.publish("2.0", days=1)
        assert desk.resolve() == (first, False)
        newer, resolved = desk.resolve(replace(REQUEST, refresh=True))
        assert (version(newer), resolved) == ("2.0", True)


def test_a_damaged_result_is_resolved_again(desk: Desk) -> None:
    first, _ = desk.resolve()
    for path in (desk.site.store / "resolved").iterdir():
        path.write_text(path.read_text().replace("hello", "hullo"))
    assert desk.resolve() == (first, True)
    assert desk.resolve() == (first, False)
