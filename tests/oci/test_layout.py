"""OCI layouts: whole, equal however they are made, and never in the place of something else."""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import json
import os
import random
import shutil
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from envbuild.core.errors import EngineError, PublishError, SpecError
from envbuild.core.store.store import LayerRecord, Store
from envbuild.net.registry.media_types import REF_NAME
from envbuild.oci.config import config_json
from envbuild.oci.layout import Layout
from envbuild.oci.tar.compress import HashingWriter, open_compressor
from tests.support.examples import examples
from tests.support.folder_content import content
from tests.support.stored_layers import EPOCH
from tests.support.stored_layout import CONFIG, write

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(os.geteuid() != 0, reason="layers that were made outside of a user namespace are read by root"),
]


def blob(layout: Layout, digest: str) -> bytes:
    return (layout.path / "blobs/sha256" / digest.removeprefix("sha256:")).read_bytes()


def test_a_layer_that_the_target_has_is_not_compressed_again(
    layers: tuple[LayerRecord, ...], tmp_path: Path, store: Store
) -> None:
    asked: list[tuple[str, int]] = []

    def present(digest: str, size: int) -> bool:
        asked.append((digest, size))
        return len(asked) > 1

    first = write(layers, tmp_path / "1", store, present=present, jobs=1)
    assert not asked  # nothing was compressed before
    second = write(layers, tmp_path / "2", store, present=present, jobs=1)
    assert (second.manifest_digest, second.layers) == (first.manifest_digest, first.layers)
    assert asked == [(layer.digest, layer.size) for layer in first.layers]
    names = [sorted(path.name for path in (place.path / "blobs/sha256").iterdir()) for place in (first, second)]
    assert set(names[0]) - set(names[1]) == {first.layers[1].digest.removeprefix("sha256:")}
    other = write(layers, tmp_path / "3", store, compression="zstd", present=present)
    assert len(asked) == 2 and len(list((other.path / "blobs/sha256").iterdir())) == 4


def test_a_record_of_a_compressed_layer_that_is_malformed_is_ignored(
    layers: tuple[LayerRecord, ...], tmp_path: Path, store: Store
) -> None:
    first = write(layers, tmp_path / "1", store)
    for text in ("", "[]", '{"gzip": 3}', '{"gzip": ["sha256:x", 3]}', '{"gzip": ["sha256:' + "a" * 64 + '", "3"]}'):
        (store.layer_path(layers[0].diff_id) / "compressed.json").write_text(text)
        again = write(layers, tmp_path / "2", store, present=lambda digest, size: True)
        assert again.manifest_digest == first.manifest_digest
        assert (again.path / "blobs/sha256" / again.layers[0].digest.removeprefix("sha256:")).is_file()


UNPACK = {
    "gzip": gzip.decompress,
    "zstd": lambda data: zstandard.ZstdDecompressor().stream_reader(data).read(),
    "none": lambda data: data,
}


@pytest.mark.slow_unit
@pytest.mark.parametrize("compression", UNPACK)
def test_every_part_is_there_under_its_digest(
    compression: str, layers: tuple[LayerRecord, ...], store: Store, tmp_path: Path
) -> None:
    layout = write(layers, tmp_path / "out", store, compression=compression)
    for path in (layout.path / "blobs/sha256").iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    index = json.loads((layout.path / "index.json").read_bytes())
    (described,) = index["manifests"]
    assert described["digest"] == layout.manifest_digest
    assert described["annotations"] == {"org.opencontainers.image.ref.name": "image:tag"}
    manifest = json.loads(blob(layout, described["digest"]))
    assert manifest["config"]["digest"] == layout.config_digest
    config = json.loads(blob(layout, layout.config_digest))
    assert config["rootfs"]["diff_ids"] == [record.diff_id for record in layers]
    for entry, record in zip(manifest["layers"], layers, strict=True):
        data = blob(layout, entry["digest"])
        assert entry["size"] == len(data)
        assert f"sha256:{hashlib.sha256(UNPACK[compression](data)).hexdigest()}" == record.diff_id
    assert len(list((layout.path / "blobs/sha256").iterdir())) == 4
    assert json.loads((layout.path / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}


@pytest.mark.slow_unit
@pytest.mark.parametrize("compression", UNPACK)
def test_threads_change_no_byte(
    compression: str, layers: tuple[LayerRecord, ...], store: Store, tmp_path: Path
) -> None:
    first, *others = (
        content(write(layers, tmp_path / f"out{jobs}", store, compression=compression, jobs=jobs).path)
        for jobs in (1, 2, 5)
    )
    assert all(first == other for other in others)


def test_gzip_contains_neither_name_nor_time(layers: tuple[LayerRecord, ...], store: Store, tmp_path: Path) -> None:
    layout = write(layers, tmp_path / "out", store)
    head = blob(layout, layout.layers[0].digest)[:10]
    assert head[:8] == bytes((0x1F, 0x8B, 8, 0, 0, 0, 0, 0))  # RFC 1952: no flags, no time


@examples(12)
@given(st.integers(0, 2_300_000), st.lists(st.integers(0, 2_300_000), max_size=5), st.sampled_from(list(UNPACK)))
def test_how_it_is_written_changes_no_byte(size: int, cuts: list[int], compression: str) -> None:
    data = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)

    def compressed(chunks: list[bytes], threads: int) -> bytes:
        file = io.BytesIO()
        with open_compressor(HashingWriter(file), compression, threads) as stream:
            for chunk in chunks:
                stream.write(chunk)
        return file.getvalue()

    bounds = [0, *sorted(min(cut, size) for cut in cuts), size]
    chunks = [data[start:end] for start, end in itertools.pairwise(bounds)]
    whole = compressed([data], 1)
    if compression != "zstd":  # which is only ever written to in the chunks of the layer
        assert compressed(chunks, 3) == whole
    assert UNPACK[compression](compressed(chunks, 2)) == data


def test_the_configuration(layers: tuple[LayerRecord, ...]) -> None:
    text = config_json(layers, CONFIG, EPOCH)
    assert text == config_json(layers, CONFIG, EPOCH)
    assert json.loads(text) == {
        "architecture": "amd64",
        "os": "linux",
        "created": "2023-11-14T22:13:20Z",
        "config": {
            "Env": ["PATH=/bin", 'WORDS=two "words" $HOME \\'],
            "Cmd": ["/bin/sh", "-l"],
            "WorkingDir": "/work",
            "Labels": {"a": "ü", "b": "2"},
        },
        "history": [
            {"created": "2023-11-14T22:13:20Z", "created_by": "envbuild unit base"},
            {"created": "2023-11-14T22:13:20Z", "created_by": "envbuild unit glue"},
        ],
        "rootfs": {"type": "layers", "diff_ids": [record.diff_id for record in layers]},
    }


def test_docker_types(layers: tuple[LayerRecord, ...], store: Store, tmp_path: Path) -> None:
    layout = write(layers, tmp_path / "out", store, docker=True)
    manifest = json.loads(blob(layout, layout.manifest_digest))
    assert manifest["mediaType"] == "application/vnd.docker.distribution.manifest.v2+json"
    assert manifest["config"]["mediaType"] == "application/vnd.docker.container.image.v1+json"
    assert {entry["mediaType"] for entry in manifest["layers"]} == {"application/vnd.docker.image.rootfs.diff.tar.gzip"}
    assert layout.config_digest == write(layers, tmp_path / "oci", store).config_digest


@pytest.mark.parametrize(("compression", "docker"), [("zstd", True), ("xz", False), ("", False)])
def test_compressions_that_do_not_exist(
    compression: str, docker: bool, layers: tuple[LayerRecord, ...], store: Store, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as error:
        write(layers, tmp_path / "out", store, compression=compression, docker=docker)
    assert "gzip" in error.value.hint
    assert not (tmp_path / "out").exists()


def test_an_older_layout_is_replaced(layers: tuple[LayerRecord, ...], store: Store, tmp_path: Path) -> None:
    write(layers, tmp_path / "out", store)
    write(layers[:1], tmp_path / "out", store)
    assert content(tmp_path / "out") == content(write(layers[:1], tmp_path / "other", store).path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "out", "store"]


def test_a_layout_with_more_than_this_image_is_left_alone(
    layers: tuple[LayerRecord, ...], store: Store, tmp_path: Path
) -> None:
    """`publish --to oci:DIR` adds images and artifacts to a layout, which nodes pull."""
    out = write(layers, tmp_path / "out", store).path
    index = json.loads((out / "index.json").read_bytes())
    index["manifests"].append({**index["manifests"][0], "annotations": {REF_NAME: "other"}})
    (out / "index.json").write_text(json.dumps(index))
    before = content(out)
    with pytest.raises(PublishError, match="image other") as caught:
        write(layers[:1], out, store)
    assert "publish" in caught.value.hint and content(out) == before
    single = write(layers, tmp_path / "single", store).path
    (single / "notes.txt").write_text("mine")
    with pytest.raises(PublishError, match=r"notes\.txt"):
        write(layers[:1], single, store)


@pytest.mark.parametrize(
    "index", [None, "", "{", '{"manifests": []}', '{"manifests": [{"annotations": 1}, {}]}', "twice"]
)
def test_a_layout_whose_images_are_not_known_is_left_alone(
    layers: tuple[LayerRecord, ...], store: Store, tmp_path: Path, index: str | None
) -> None:
    """An interrupted copy by another program writes index.json last."""
    out = write(layers, tmp_path / "out", store).path
    found = json.loads((out / "index.json").read_bytes())
    if index is None:
        (out / "index.json").unlink()
    else:
        twice = json.dumps({**found, "manifests": found["manifests"] * 2})
        (out / "index.json").write_text(twice if index == "twice" else index)
    before = content(out)
    with pytest.raises(PublishError, match="2 images image:tag" if index == "twice" else "blobs that no index lists"):
        write(layers[:1], out, store)
    assert content(out) == before
    if index is None:
        shutil.rmtree(out / "blobs")
        write(layers[:1], out, store)  # nothing of value is in it


def test_something_else_is_left_alone(layers: tuple[LayerRecord, ...], store: Store, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with pytest.raises(PublishError, match="not an OCI layout"):
        write(layers, tmp_path / "out", store)
    assert content(tmp_path / "out") == {"thesis.tex": b"years of work"}


def test_a_damaged_layer_leaves_the_older_layout(layers: tuple[LayerRecord, ...], store: Store, tmp_path: Path) -> None:
    before = content(write(layers, tmp_path / "out", store).path)
    (store.layer_tree(layers[1].diff_id) / "two").write_text("3\n")
    with pytest.raises(EngineError, match="reads as"):
        write(layers, tmp_path / "out", store)
    assert content(tmp_path / "out") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "store"]
