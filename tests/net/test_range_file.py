"""A file at an address, of which only the bytes that are read are requested."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest

from envbuild.net import range_file
from envbuild.net.failures import UnreachableError
from envbuild.net.range_file import MAX_READ, TAIL, MalformedFileError, NoRangesError, RemoteFile, Tally
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from tests.support.wheel_server import Parts, serve_parts

pytestmark = pytest.mark.unit

CONTENT = random.Random(1).randbytes(5 * TAIL)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry without a pause."""
    monkeypatch.setattr(range_file, "PAUSE", 0)


def opened(parts: Parts, content: bytes = CONTENT) -> RemoteFile:
    parts.files["/file"] = content
    return RemoteFile(Transport(Site(Path("/none")).network()), f"{parts.url}/file", Tally())


def test_only_what_is_read_is_requested() -> None:
    with serve_parts() as parts:
        file = opened(parts)
        assert parts.asked == [f"bytes=-{TAIL}"] and file.size == len(CONTENT)
        assert (file.seek(-10, io.SEEK_END), file.read()) == (len(CONTENT) - 10, CONTENT[-10:])
        assert (file.read(5), file.tell()) == (b"", len(CONTENT))
        file.seek(7)
        assert (file.read(20), file.read(30), file.tell()) == (CONTENT[7:27], CONTENT[27:57], 57)
        assert parts.asked[1:] == [f"bytes=7-{TAIL + 6}"]
        file.seek(-20, io.SEEK_CUR)
        assert file.read(3) == CONTENT[37:40]
        assert file.seekable() and file.readable() and len(parts.asked) == 2
        assert (file.tally.requests, file.tally.received) == (2, 2 * TAIL)


def test_the_cached_end_is_not_requested_again() -> None:
    with serve_parts() as parts:
        file = opened(parts)
        start = len(CONTENT) - TAIL - 100
        file.seek(start)
        assert file.read(300) == CONTENT[start : start + 300]
        assert parts.asked[1:] == [f"bytes={start}-{start + 99}"]
        assert file.read(TAIL - 200) == CONTENT[start + 300 :]
        assert len(parts.asked) == 2


@pytest.mark.parametrize("size", [0, 1, 100, TAIL, TAIL + 1])
def test_a_server_that_does_not_count_from_the_end(size: int) -> None:
    content = CONTENT[: max(size, 1)]
    with serve_parts() as parts:
        parts.ways = ["no-suffix", ""]
        assert opened(parts, content).read() == content


@pytest.mark.parametrize("way", ["long", "other", "grow"])
def test_an_answer_that_does_not_fit_the_request(way: str) -> None:
    with serve_parts() as parts:
        file = opened(parts)
        parts.ways = [way]
        with pytest.raises(MalformedFileError):
            file.read(10)


def test_a_broken_connection_is_tried_again() -> None:
    with serve_parts() as parts:
        parts.ways = ["short", ""]
        assert opened(parts).read(10) == CONTENT[:10]
        parts.ways = ["short"]
        with pytest.raises(UnreachableError):
            opened(parts)


def test_a_server_without_ranges_is_refused() -> None:
    with serve_parts() as parts:
        parts.ways = ["whole"]
        with pytest.raises(NoRangesError):
            opened(parts)


def test_offsets_and_sizes_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_parts() as parts:
        file = opened(parts)
        with pytest.raises(MalformedFileError):
            file.seek(-1)
        assert MAX_READ == 1 << 24
        monkeypatch.setattr(range_file, "MAX_READ", 100)
        assert len(file.read(100)) == 100
        with pytest.raises(MalformedFileError):
            file.read(101)
