"""Blobs that are cached while they are read: an interrupted run resumes, and wrong content is never cached."""

from __future__ import annotations

import hashlib
from typing import Any, cast

import pytest

from envbuild.core.store.store import Store
from envbuild.oci.sources.blob_stream import RegistryBlob
from envbuild.oci.sources.cached_blob import CachedBlob, has_blob_or_part, open_cached, open_part

pytestmark = pytest.mark.unit

CONTENT = bytes(range(256)) * 40
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Remote:
    """The blob of a registry: `requested` are the offsets from which bytes were read."""

    def __init__(self, content: bytes) -> None:
        self.content, self.position, self.closed = content, 0, False
        self.requested: list[int] = []

    def read(self, size: int = -1) -> bytes:
        self.requested.append(self.position)
        chunk = self.content[self.position :][: size if size >= 0 else None]
        self.position += len(chunk)
        return chunk

    def close(self) -> None:
        self.closed = True


def opened(store: Store, content: bytes = CONTENT) -> tuple[CachedBlob, Remote]:
    remote = Remote(content)
    return CachedBlob(cast("RegistryBlob", remote), store, DIGEST, len(CONTENT)), remote


def content(blob: Any, size: int = 1000) -> bytes:
    return b"".join(iter(lambda: blob.read(size), b""))


def test_a_blob_that_is_read_is_in_the_store(store: Store) -> None:
    blob, remote = opened(store)
    assert content(blob) == CONTENT and blob.read(1) == b""
    blob.close()
    assert remote.closed and store.blob(DIGEST).read_bytes() == CONTENT
    assert store.blob(DIGEST).stat().st_mode & 0o777 == 0o644
    assert not store.part(DIGEST).exists()


@pytest.mark.parametrize("size", [1, 3000, len(CONTENT) - 1])
@pytest.mark.parametrize("step", [1000, -1])
def test_an_interrupted_run_resumes_at_the_first_missing_byte(store: Store, size: int, step: int) -> None:
    blob, _ = opened(store)
    assert blob.read(size) == CONTENT[:size]
    blob.close()
    assert has_blob_or_part(store, DIGEST)
    blob, remote = opened(store)
    assert content(blob, step) == CONTENT
    assert remote.requested[0] == size
    assert store.blob(DIGEST).read_bytes() == CONTENT


@pytest.mark.parametrize("part", [b"x" * 100, b"x" * (len(CONTENT) + 1), b""])
def test_a_part_of_other_content_is_discarded(store: Store, part: bytes) -> None:
    store.part(DIGEST).parent.mkdir(exist_ok=True)
    store.part(DIGEST).write_bytes(part)
    blob, remote = opened(store)
    found = content(blob)
    whole = len(part) != 100
    assert (found == CONTENT, store.has_blob(DIGEST)) == (whole, whole)
    assert not store.part(DIGEST).exists()
    assert remote.requested[0] == (0 if whole else 100)


def test_wrong_content_of_a_registry_is_not_cached(store: Store) -> None:
    blob, _ = opened(store, b"y" * len(CONTENT))
    content(blob)
    assert not has_blob_or_part(store, DIGEST)


def test_only_one_process_writes_a_blob(store: Store) -> None:
    first, _ = opened(store)
    second, _ = opened(store)
    assert second.file is None and content(second) == CONTENT
    assert not store.has_blob(DIGEST)
    assert content(first) == CONTENT and store.has_blob(DIGEST)
    file = open_part(store, DIGEST)
    assert file is not None
    file.close()


def test_a_corrupt_blob_of_the_store_is_read_only_until_it_was_noticed(store: Store) -> None:
    assert open_cached(store, DIGEST, again=False) is None
    store.blob(DIGEST).write_bytes(b"corrupt")
    for again, text in ((False, b"corrupt"), (True, None)):
        file = open_cached(store, DIGEST, again=again)
        assert (file.read() if file else None) == text
        if file:
            file.close()
    assert not store.has_blob(DIGEST)
