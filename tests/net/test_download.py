"""Downloads into the store: from the first place that has the file, resumed, and only with the right digest."""

from __future__ import annotations

import hashlib
import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from envbuild.core.store.store import Store
from envbuild.net.download import ATTEMPTS, DownloadError, Transfer
from envbuild.net.miss import MissKind
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from tests.support.http_server import Handler, serving

pytestmark = pytest.mark.unit

CONTENT = bytes(range(256)) * 400
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Answers:
    """A server's behaviour: `cuts`: bytes after which the next answers end; `ranges`: whether it knows ranges;
    `shift`: by how much its ranges are wrong. `requested` are the Range headers."""

    content: bytes = CONTENT
    cuts: list[int] = field(default_factory=list)
    ranges: bool = True
    shift: int = 0
    requested: list[str] = field(default_factory=list)


@contextmanager
def served(answers: Answers) -> Iterator[str]:
    class Answering(Handler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            answers.requested.append(wanted)
            found = re.fullmatch(r"bytes=(\d+)-", wanted) if answers.ranges else None
            start = int(found[1]) + answers.shift if found else 0
            if self.path != "/file":
                self.send_error(404)
                return
            if found and start >= len(answers.content):
                self.send_error(416)
                return
            body = answers.content[start:]
            self.send_response(206 if found else 200)
            if found:
                last = len(answers.content) - 1
                self.send_header("Content-Range", f"bytes {start}-{last}/{len(answers.content)}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if answers.cuts:
                body, self.close_connection = body[: answers.cuts.pop(0)], True
            self.wfile.write(body)

    with serving(Answering) as url:
        yield f"{url}/file"


def transfer(store: Store, received: list[int] | None = None) -> Transfer:
    progress = received.append if received is not None else lambda size: None
    return Transfer(Transport(Site(Path("/none")).network()), store, progress, pause=0.001)


def left(store: Store, content: bytes) -> None:
    """Write the part of an earlier run."""
    store.part(DIGEST).parent.mkdir(exist_ok=True)
    store.part(DIGEST).write_bytes(content)


@pytest.mark.parametrize("have", [0, 50_000])
def test_a_download_is_not_read_again_for_its_digest(store: Store, monkeypatch: pytest.MonkeyPatch, have: int) -> None:
    """Only the part of an earlier run is read."""
    if have:
        left(store, CONTENT[:have])
    read: list[int] = []

    class Counted(io.BufferedRandom):
        def read(self, size: int | None = -1) -> bytes:
            read.append(len(found := super().read(size)))
            return found

        def readinto(self, buffer: object) -> int:
            read.append(count := super().readinto(buffer))  # type: ignore[arg-type]
            return count

    opened = Path.open
    monkeypatch.setattr(
        Path,
        "open",
        lambda path, mode="r": Counted(io.FileIO(path, "a+")) if path.suffix == ".part" else opened(path, mode),
    )
    with served(Answers()) as url:
        assert transfer(store).obtain([url], DIGEST) == (DIGEST, len(CONTENT))
    assert sum(read) == have
    assert store.blob(DIGEST).read_bytes() == CONTENT


def test_an_interrupted_download_resumes(store: Store) -> None:
    received: list[int] = []
    answers = Answers(cuts=[1000, 2000])
    with served(answers) as url:
        assert transfer(store, received).obtain([url], DIGEST) == (DIGEST, len(CONTENT))
    assert answers.requested == ["", "bytes=1000-", "bytes=3000-"]
    assert store.blob(DIGEST).read_bytes() == CONTENT and sum(received) == len(CONTENT)
    assert store.blob(DIGEST).stat().st_mode & 0o777 == 0o644
    assert list((store.root / "partial").iterdir()) == []
    assert transfer(store, received).obtain([], DIGEST) == (DIGEST, len(CONTENT))
    assert sum(received) == 2 * len(CONTENT)


@pytest.mark.slow_unit
@pytest.mark.parametrize(
    ("part", "ranges", "requested"),
    [
        (CONTENT, True, [f"bytes={len(CONTENT)}-"]),
        (CONTENT[:100], True, ["bytes=100-"]),
        (CONTENT[:100], False, ["bytes=100-"]),
        (b"x" * 100, True, ["bytes=100-", ""]),
        (b"x" * (len(CONTENT) + 5), True, [f"bytes={len(CONTENT) + 5}-", ""]),
        (b"", True, [""]),
    ],
)
def test_the_part_of_an_earlier_run(part: bytes, ranges: bool, requested: list[str], store: Store) -> None:
    left(store, part)
    received: list[int] = []
    answers = Answers(ranges=ranges)
    with served(answers) as url:
        assert transfer(store, received).obtain([url], DIGEST) == (DIGEST, len(CONTENT))
    assert answers.requested == requested
    assert store.blob(DIGEST).read_bytes() == CONTENT and sum(received) == len(CONTENT)


@pytest.mark.parametrize(("part", "requested"), [(CONTENT, []), (b"x" * len(CONTENT), [""])])
def test_a_part_of_the_full_size_is_digested_first(part: bytes, requested: list[str], store: Store) -> None:
    left(store, part)
    answers = Answers()
    with served(answers) as url:
        assert transfer(store).obtain([url], DIGEST, len(CONTENT)) == (DIGEST, len(CONTENT))
    assert answers.requested == requested


def test_another_range_than_requested_is_not_taken(store: Store) -> None:
    left(store, CONTENT[:100])
    answers = Answers(shift=7)
    with served(answers) as url:
        assert transfer(store).obtain([url], DIGEST) == (DIGEST, len(CONTENT))
    assert answers.requested == ["bytes=100-", ""]


@pytest.mark.slow_unit
def test_the_next_place_is_tried_and_every_miss_is_named(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    wrong = Answers(content=b"wrong")
    cut = Answers(cuts=[0] * ATTEMPTS)
    with served(wrong) as one, served(cut) as two:
        places = [f"{one}/none", one, two]
        with pytest.raises(DownloadError) as caught:
            transfer(store).obtain(places, DIGEST)
        assert [miss.kind for miss in caught.value.misses] == [
            MissKind.ABSENT,
            MissKind.MISMATCH,
            MissKind.UNREACHABLE,
        ]
        assert not caught.value.absent and len(cut.requested) == ATTEMPTS
        assert not store.part(DIGEST).exists()
        with pytest.raises(DownloadError) as caught:
            transfer(store).obtain([f"{one}/none"], DIGEST)
        assert caught.value.absent
        assert transfer(store).obtain([*places, str(tmp_path / "file")], DIGEST) == (DIGEST, len(CONTENT))


def test_without_a_digest_any_content_is_accepted(store: Store, tmp_path: Path) -> None:
    with served(Answers()) as url:
        assert transfer(store).obtain([url]) == (DIGEST, len(CONTENT))
        assert store.has_blob(DIGEST) and list((store.root / "partial").iterdir()) == []


def test_a_blob_that_is_there_leaves_no_part(store: Store) -> None:
    with served(Answers()) as url:
        for _ in range(2):
            assert transfer(store).obtain([url], DIGEST) == (DIGEST, len(CONTENT))
            assert list((store.root / "partial").iterdir()) == []


def test_work_ends_soon_after_a_stop(store: Store) -> None:
    work = transfer(store)
    work.stop = threading.Event()
    work.stop.set()
    with served(Answers(cuts=[10])) as url, pytest.raises(DownloadError) as caught:
        work.obtain([url], DIGEST)
    assert "stopped" in str(caught.value)


@pytest.mark.parametrize("digest", [DIGEST, ""])
def test_a_login_page_is_not_taken_for_the_file(digest: str, store: Store) -> None:
    page = b"\n<!DOCTYPE html>\n<html><body><form>Accept the licence</form></body></html>"
    with served(Answers(content=page)) as url, pytest.raises(DownloadError) as caught:
        transfer(store).obtain([url], digest)
    (miss,) = caught.value.misses
    assert miss.kind is MissKind.UNAUTHORIZED
    assert list((store.root / "partial").glob("*")) == []
