"""A squashfs file that is written while the blobs that it is made of arrive."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from envbuild.core.errors import InputError
from envbuild.net.arrival import Arrival
from envbuild.net.download import Transfer
from envbuild.net.failures import UnreachableError
from envbuild.net.received_file import ReceivedFile
from envbuild.publish import pull_packs
from envbuild.publish.pull import pull_image
from envbuild.publish.remote_image import RemoteImage
from envbuild.spec.workspace import Workspace
from tests.support.foreign_images import layers, noise, workspace
from tests.support.local_registry import file, tar
from tests.support.published import built, document, publish_folder, pull
from tests.support.pulls import digest
from tests.support.pulls import no_pauses as no_pauses

pytestmark = pytest.mark.registry
SMALLER = 5_000_000  # more bytes than all blobs have but the one of 8 MB


def report_written(at: Workspace, least: int, begun: threading.Event) -> None:
    """Set the event when more than `least` bytes of the file are written."""

    def advance(task: str, done: int, total: int = 0) -> None:
        if task == "squashfs" and done > least:
            begun.set()

    at.reporter.advance = advance  # type: ignore[method-assign, assignment]


def test_the_file_is_written_while_blobs_are_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last blob comes when bytes of the file have been written."""
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    publish_folder(parts, artifacts, tmp_path / "shared", "1")
    last, begun = document(artifacts[0])["packs"][-1]["blobs"][-1][0].removeprefix("sha256:"), threading.Event()
    at, obtain = workspace(tmp_path / "b"), pull_packs.obtain

    def late(image: RemoteImage, transfer: Transfer, digest: str, size: int, arrival: Arrival) -> None:
        if digest == last:
            assert begun.wait(60), "nothing was written"
        obtain(image, transfer, digest, size, arrival)

    monkeypatch.setattr(pull_packs, "obtain", late)
    report_written(at, 100_000, begun)
    made = pull_image(f"oci:{tmp_path}/shared:1", None, at).data
    assert (made["sha256"], digest(made["path"])) == (sha256, sha256)


def test_the_file_is_written_while_a_blob_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second half of the largest blob comes when a part of the first one is in the file."""
    parts, artifacts, sha256 = built(tmp_path / "a", [*layers(), tar(file("large", noise(8_000_000, 1)))])
    publish_folder(parts, artifacts, tmp_path / "shared", "1")
    begun, write = threading.Event(), ReceivedFile.write

    def late(received: ReceivedFile, chunk: bytes) -> None:
        if received.size > 4_000_000:
            assert begun.wait(60), "nothing was written"
        write(received, chunk)

    at = workspace(tmp_path / "b")
    monkeypatch.setattr(ReceivedFile, "write", late)
    report_written(at, SMALLER, begun)
    made = pull_image(f"oci:{tmp_path}/shared:1", None, at).data
    assert (made["sha256"], digest(made["path"])) == (sha256, sha256)


@pytest.mark.parametrize("first", [b"", b"!"], ids=["the same", "other"])
def test_bytes_that_were_discarded_do_not_remain_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    """A server begins again, with the same content or with other, when a part of the first bytes is in the file."""
    parts, artifacts, sha256 = built(tmp_path / "a", [*layers(), tar(file("large", noise(8_000_000, 1)))])
    publish_folder(parts, artifacts, tmp_path / "shared", "1")
    begun, write, resets = threading.Event(), ReceivedFile.write, list[int]()
    large = max(artifacts[0].blobs, key=lambda blob: blob.size).digest

    def again(received: ReceivedFile, chunk: bytes) -> None:
        if received.size > 4_000_000 and not resets:
            assert begun.wait(60), "nothing was written"
            resets.append(received.size)
            received.reset()
            raise UnreachableError("the connection broke off")
        wrong = large in str(received.file.name) and not resets
        write(received, first + chunk[len(first) :] if wrong else chunk)

    at = workspace(tmp_path / "b")
    monkeypatch.setattr(ReceivedFile, "write", again)
    report_written(at, SMALLER, begun)
    made = pull_image(f"oci:{tmp_path}/shared:1", None, at).data
    assert resets and (made["sha256"], digest(made["path"])) == (sha256, sha256)


def test_a_blob_that_is_missing_ends_the_pull_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the file waits for another one; nothing remains beside it."""
    parts, artifacts, _ = built(tmp_path / "a", layers())
    publish_folder(parts, artifacts, tmp_path / "shared", "1")
    missing = max(artifacts[0].blobs, key=lambda blob: blob.size).digest
    (tmp_path / "shared/blobs/sha256" / missing).unlink()
    obtain = pull_packs.obtain

    def slow(image: RemoteImage, transfer: Transfer, digest: str, size: int, arrival: Arrival) -> None:
        if digest != missing:
            transfer.stop.wait(60)
        obtain(image, transfer, digest, size, arrival)

    monkeypatch.setattr(pull_packs, "obtain", slow)
    began = time.monotonic()
    with pytest.raises(InputError, match=missing):
        pull(f"oci:{tmp_path}/shared:1", tmp_path / "b")
    assert time.monotonic() - began < 30 and not list((tmp_path / "b/artifacts").iterdir())
