"""Heads of answers that have no end: the attempt ends."""

from __future__ import annotations

import pytest

from envbuild.net.failures import UnreachableError
from envbuild.net.limits import DownloadLimits
from envbuild.net.network_settings import NetworkSettings
from envbuild.net.transport import Transport
from tests.support.endless_server import sending
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.unit

INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize(
    ("piece", "pause", "why"),
    [(INTERIM * 100, 0, "has more than 1048576 bytes"), (b"H", 0.05, "no answer in time")],
    ids=["interim answers", "a byte at a time"],
)
def test_the_head_of_an_answer_has_an_end(
    piece: bytes, pause: float, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envbuild.net.answer_head.LIMITS", DownloadLimits(grace=1 if pause else 30))
    transport = Transport(NetworkSettings())
    with sending(piece, pause) as url, ends_within(30), pytest.raises(UnreachableError, match=why):
        transport.session()
        with transport.get(url):
            pass


def test_an_interim_answer_before_the_real_one_is_read() -> None:
    with sending(INTERIM + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 60) as url, ends_within(30):
        assert Transport(NetworkSettings()).read(url).content == b"ok"
