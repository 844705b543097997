"""The archive that a Docker Engine gets: whole, or not at all."""

from __future__ import annotations

import io
import json
import os
import tarfile
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.store.store import LayerRecord, Store
from envbuild.oci import docker_engine
from envbuild.oci.config import ImageConfig
from envbuild.oci.docker_engine import _ArchiveStream
from tests.support.stored_layers import EPOCH, files, layer

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(os.geteuid() != 0, reason="layers that were made outside of a user namespace are read by root"),
]


@pytest.fixture
def layers(store: Store) -> tuple[LayerRecord, ...]:
    base = layer(store, "base", files(one="1\n"))
    return base, layer(store, "glue", files(two="2\n"), [base])


def stream(layers: tuple[LayerRecord, ...], store: Store) -> _ArchiveStream:
    return _ArchiveStream(layers, ImageConfig(cmd=("/bin/sh",)), store, EPOCH, "app:1", SilentReporter())


def test_an_archive_has_the_layers_and_names_the_image(layers: tuple[LayerRecord, ...], store: Store) -> None:
    content = b"".join(stream(layers, store).chunks())
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        members = {member.name: member for member in tar}
        file = tar.extractfile("manifest.json")
        assert file
        (manifest,) = json.loads(file.read())
    assert manifest["RepoTags"] == ["app:1"] and manifest["Config"] in members
    assert [members[name].size for name in manifest["Layers"]] == [record.size for record in layers]
    assert {member.mtime for member in members.values()} == {EPOCH}
    assert content == b"".join(stream(layers, store).chunks())


def test_a_truncated_archive_does_not_end_as_a_whole_one(
    layers: tuple[LayerRecord, ...], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("the layer is gone")

    monkeypatch.setattr(docker_engine, "write_layer_tar", fail)
    with pytest.raises(OSError, match="the layer is gone"):
        list(stream(layers, store).chunks())


def test_a_reader_that_stops_ends_the_writer(layers: tuple[LayerRecord, ...], store: Store) -> None:
    archive = stream(layers, store)
    chunks = archive.chunks()
    assert next(chunks)
    chunks.close()  # type: ignore[attr-defined]
    assert archive.failure is None
