"""Reasons why a place did not provide something, as values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.core.store.store import Store
from envbuild.net.download import DownloadError, Transfer
from envbuild.net.miss import Miss, MissKind, all_absent
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from tests.support.lock_server import Answers, serve, sha256

pytestmark = pytest.mark.unit


@pytest.fixture
def server() -> Iterator[Answers]:
    with serve() as answers:
        yield answers


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, MissKind.ABSENT),
        (410, MissKind.ABSENT),
        (401, MissKind.UNAUTHORIZED),
        (403, MissKind.REFUSED),
        (429, MissKind.RATE_LIMITED),
        (503, MissKind.UNREACHABLE),
    ],
)
def test_kinds_of_http_answers(status: int, kind: MissKind, server: Answers, store: Store) -> None:
    server.faults["/file"] = [status] * 9
    transfer = Transfer(Transport(Site(store.root, use_host=False).network()), store, pause=0.001)
    with pytest.raises(DownloadError) as caught:
        transfer.obtain([f"{server.url}/file"])
    (miss,) = caught.value.misses
    assert miss.kind is kind and miss.place == f"{server.url}/file" and f"HTTP {status}" in miss.detail
    assert caught.value.absent == (kind is MissKind.ABSENT)


def test_other_content_is_a_mismatch(server: Answers, store: Store, tmp_path: Path) -> None:
    server.files["/file"] = b"other"
    transfer = Transfer(Transport(Site(store.root, use_host=False).network()), store, pause=0.001)
    with pytest.raises(DownloadError) as caught:
        transfer.obtain([str(tmp_path / "none"), f"{server.url}/file"], sha256(b"content"))
    assert [miss.kind for miss in caught.value.misses] == [MissKind.ABSENT, MissKind.MISMATCH]
    assert not caught.value.absent


def test_no_attempt_is_not_absent() -> None:
    assert not all_absent([])
    assert all_absent([Miss("a", MissKind.ABSENT, "no such file")])
