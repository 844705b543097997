"""Probes: one request for each place, HEAD or GET, and one connection to snapshot services."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from envbuild.net import probe as module
from envbuild.net.probe import Probe, probe_all
from envbuild.net.site import Site
from tests.support.endless_server import sending
from tests.support.http_server import Handler, serving
from tests.support.snapshot_server import snapshot_service
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.unit
METHODS: list[tuple[str, str]] = []
STATUS = {"/ok": 200, "/gone": 404, "/login": 401, "/busy": 503, "/get-only": 200}


@pytest.fixture
def url() -> Iterator[str]:
    METHODS.clear()

    class Answering(Handler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            METHODS.append((self.command, self.path))
            refused = self.path == "/get-only" and self.command == "HEAD"
            self.send_response(405 if refused else STATUS[self.path])
            self.send_header("Content-Length", "0")
            self.end_headers()

    with serving(Answering) as address:
        yield address


@pytest.mark.parametrize(
    ("path", "exact", "answers"),
    [
        ("/ok", True, True),
        ("/get-only", True, True),
        ("/gone", True, False),
        ("/gone", False, True),
        ("/login", True, False),
        ("/login", False, True),
        ("/busy", True, False),
        ("/busy", False, False),
    ],
)
def test_the_answer_of_a_place(path: str, exact: bool, answers: bool, url: str, tmp_path: Path) -> None:
    probe = Probe(f"{url}{path}", exact=exact)
    found = probe_all(Site(tmp_path), [probe, probe])[probe]
    assert found.answers is answers
    assert found.detail.startswith("HTTP ")
    assert len(METHODS) <= 2  # no retries


def test_folders_and_hosts_that_do_not_answer(tmp_path: Path) -> None:
    here, absent, closed = Probe(str(tmp_path)), Probe(str(tmp_path / "none")), Probe("http://127.0.0.1:9/x")
    began = time.monotonic()
    found = probe_all(Site(tmp_path), [here, absent, closed])
    assert [found[probe].answers for probe in (here, absent, closed)] == [True, False, False]
    assert found[closed].detail == "connection refused"
    assert time.monotonic() - began < 5


def test_places_that_answer_too_slowly_are_silent_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte of the head now and then, and a service of names that does not answer."""
    monkeypatch.setattr(module, "SECONDS", 1)
    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **o: resolve(*a, **o) if a[0][0] == "1" else time.sleep(60))
    with ExitStack() as stack:
        places = [stack.enter_context(sending(b"H", 0.05)) for _ in range(12)]
        probes = [*map(Probe, places), Probe("https://envbuild.example/")]
        began = time.monotonic()
        with ends_within(30):
            found = probe_all(Site(tmp_path), probes)
        assert time.monotonic() - began < 5
    assert {(answer.answers, answer.detail) for answer in found.values()} == {(False, "no answer in time")}


def test_a_snapshot_service_gets_one_request_at_a_time(tmp_path: Path) -> None:
    with snapshot_service() as service:
        times = [f"2026010{day}T000000Z" for day in range(1, 7)]
        service.imports = {time: {"dists/trixie/InRelease": b"x"} for time in times}
        probes = [Probe(f"{service.url}/archive/debian/{time}/dists/trixie/InRelease", patient=True) for time in times]
        found = probe_all(Site(tmp_path), probes)
        assert all(answer.answers for answer in found.values())
        assert service.most == 1
