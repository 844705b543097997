"""Images of registries: references as docker and enroot write them, and documents that the store has."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.core.errors import InputError, SpecError
from envbuild.core.store.store import Store
from envbuild.net.registry.client import Repository
from envbuild.net.registry.reference import parse_reference
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from envbuild.oci.manifest import BlobDescriptor
from envbuild.oci.sources.registry import _RepositoryReader, parse_source_reference, printable_reference

pytestmark = pytest.mark.unit

DOCUMENT = b'{"schemaVersion": 2}'
DIGEST = hashlib.sha256(DOCUMENT).hexdigest()


@pytest.mark.parametrize(
    ("rest", "text"),
    [
        ("app", "docker.io/library/app:latest"),
        ("some/app:1", "docker.io/some/app:1"),
        ("localhost/app:1", "localhost/app:1"),
        ("host:5000/app:1", "host:5000/app:1"),
        ("nvcr.io#nvidia/pytorch:25.10-py3", "nvcr.io/nvidia/pytorch:25.10-py3"),
        ("#some/app:1", "docker.io/some/app:1"),
        (f"ghcr.io/a/b@sha256:{DIGEST}", f"ghcr.io/a/b@sha256:{DIGEST}"),
    ],
)
def test_references_of_docker_and_enroot(rest: str, text: str) -> None:
    assert printable_reference(parse_source_reference(rest)) == text


def test_a_user_in_a_reference_is_refused_and_not_repeated() -> None:
    with pytest.raises(SpecError) as caught:
        parse_source_reference("me:secret@ghcr.io/a/b:1")
    assert "secret" not in str(caught.value) and "docker://ghcr.io/a/b:1" in caught.value.hint


def reader(store: Store, requests: list[str]) -> Any:
    """Return a reader of a repository that records what is requested of it."""

    def manifest(wanted: str) -> bytes:
        requests.append(wanted)
        return DOCUMENT

    return _RepositoryReader(SimpleNamespace(manifest=manifest, places=[]), store, False)  # type: ignore[arg-type]


def test_a_document_is_requested_once_and_a_tag_each_time(store: Store) -> None:
    requests: list[str] = []
    place = reader(store, requests)
    for wanted in ("1.0", "1.0", f"sha256:{DIGEST}"):
        assert place.document(wanted, "app") == (DOCUMENT, {"schemaVersion": 2})
    assert requests == ["1.0", "1.0"]
    part = BlobDescriptor(DIGEST, len(DOCUMENT), "")
    assert place.blob(part, "app") == DOCUMENT
    assert list((store.tmp).iterdir()) == []


def test_a_corrupt_document_of_the_store_is_reported(store: Store) -> None:
    place = reader(store, [])
    place.document("1.0", "app")
    store.blob(DIGEST).write_bytes(b"{}")
    with pytest.raises(InputError):
        place.document(f"sha256:{DIGEST}", "app")


@pytest.mark.parametrize("wrong", [DOCUMENT.upper(), DOCUMENT + b" "])
def test_a_blob_that_is_wrong_at_one_place_is_read_at_the_next(wrong: bytes, store: Store, tmp_path: Path) -> None:
    for name, content in (("a", wrong), ("b", DOCUMENT)):
        (tmp_path / name / "app/blobs/sha256").mkdir(parents=True)
        (tmp_path / name / "app/blobs/sha256" / DIGEST).write_bytes(content)
    part = BlobDescriptor(DIGEST, len(DOCUMENT), "")

    def read(*names: str) -> bytes:
        site = Site(Path("/none"), mirrors={"oci:reg.example/": tuple(str(tmp_path / name) for name in names)})
        repository = Repository(parse_reference("reg.example/app:1"), site, Transport(site.network()))
        return _RepositoryReader(repository, store, False, alone=True).blob(part, "app")

    with pytest.raises(InputError, match="is damaged"):
        read("a")
    assert read("a", "b") == DOCUMENT
