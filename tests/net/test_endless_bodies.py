"""Bodies that continue without content: the attempt ends, because one read has limits of bytes and of time."""

from __future__ import annotations

import gzip

import pytest

from envbuild.net import body
from envbuild.net.body import read_body
from envbuild.net.failures import UnreachableError
from envbuild.net.limits import DownloadLimits
from envbuild.net.network_settings import NetworkSettings
from envbuild.net.transport import Transport
from tests.support.endless_server import sending
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.unit

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
ZIPPED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
# RFC 1952 (header, FNAME) and RFC 1951 (a stored block of no bytes)
HEADER, NAMED, EMPTY_BLOCK = (
    b"\x1f\x8b\x08\0" + bytes(5) + b"\x03",
    b"\x1f\x8b\x08\x08" + bytes(5) + b"\x03",
    b"\0\0\0\xff\xff",
)
ENDLESS = {
    "trailers": (CHUNKED, b"X: y\r\n" * 1000, 0.0),
    "slow trailers": (CHUNKED, b"X: y\r\n", 0.05),
    "empty blocks": (ZIPPED + HEADER, EMPTY_BLOCK * 1000, 0.0),
    "slow empty blocks": (ZIPPED + HEADER, EMPTY_BLOCK, 0.05),
    "a name": (ZIPPED + NAMED, b"A" * 5000, 0.0),
    "empty members": (ZIPPED, gzip.compress(b"") * 200, 0.0),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_body_that_goes_on_without_content_has_an_end(name: str) -> None:
    begin, piece, pause = ENDLESS[name]
    why = "no answer in time" if pause else "its answer continues without content"
    limits = DownloadLimits(grace=1 if pause else 60)
    with (
        sending(piece, pause, begin) as url,
        ends_within(30),
        Transport(NetworkSettings()).get(url) as answer,
        pytest.raises(UnreachableError, match=why),
    ):
        for _ in read_body(answer, 100, limits, decode=True):
            pass


def test_chunks_of_two_bytes_end_when_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read takes its time: 16 MiB of them took more than a minute of a processor."""
    monkeypatch.setattr(body, "FREE_READS", 2000)
    begin = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with (
        sending(b"2\r\n{}\r\n" * 1000, 0.0, begin) as url,
        ends_within(30),
        Transport(NetworkSettings()).get(url) as answer,
        pytest.raises(UnreachableError, match="it sends less than 32 bytes at a time"),
    ):
        for _ in read_body(answer, 1 << 24):
            pass


def test_trailers_of_an_ordinary_size_are_read() -> None:
    whole = CHUNKED + b"X: " + b"y" * 60_000 + b"\r\n\r\n"
    with sending(whole, 60) as url, ends_within(30):
        assert Transport(NetworkSettings()).read(url).content == b"{}"
