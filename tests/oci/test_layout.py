"""OCI layouts: whole, equal however they are made, and never in the place of something else."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import itertools
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from envbuild.core.errors import EngineError, PublishError, SpecError
from envbuild.core.store.store import LayerRecord, Store
from envbuild.net.registry.media_types import REF_NAME
from envbuild.oci.config import ImageConfig, config_json
from envbuild.oci.layers.layer import write_layer_tar
from envbuild.oci.layout import Layout, write_layout
from envbuild.oci.output_folder import STALE, open_output_folder
from envbuild.oci.tar.compress import HashingWriter, open_compressor
from tests.support.examples import examples
from tests.support.stored_layers import EPOCH, files, layer

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(os.geteuid() != 0, reason="layers that were made outside of a user namespace are read by root"),
]

CONFIG = ImageConfig(
    env={"PATH": "/bin", "WORDS": 'two "words" $HOME \\'},
    cmd=("/bin/sh", "-l"),
    workdir="/work",
    labels={"b": "2", "a": "ü"},
)


@pytest.fixture
def layers(store: Store) -> tuple[LayerRecord, ...]:
    base = layer(store, "base", files(one="1\n", big=random.Random(1).randbytes(1_500_000).hex()))
    return base, layer(store, "glue", files(two="2\n"), [base])


def write(layers: tuple[LayerRecord, ...], out: Path, store: Store, **options: Any) -> Layout:
    return write_layout(layers, CONFIG, out, store, epoch=EPOCH, name="image:tag", **options)


def blob(layout: Layout, digest: str) -> bytes:
    return (layout.path / "blobs/sha256" / digest.removeprefix("sha256:")).read_bytes()


def content(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


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


def test_a_layout_that_cannot_be_replaced_remains(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "oci-layout").write_text("old")
    with pytest.raises(OSError), open_output_folder(out, "oci-layout", os.fspath) as folder:
        (tmp_path / folder.name).rmdir()
        folder.publish()
    assert content(out) == {"oci-layout": b"old"}
    with open_output_folder(out, "oci-layout", os.fspath) as folder:
        folder.publish()
    assert content(out) == {} and list(tmp_path.iterdir()) == [out]


def test_what_killed_writers_left_is_removed_but_not_what_a_live_one_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert STALE > 3600
    killed, kept = (
        [tmp_path / ".out.envbuild-0123abcd", tmp_path / ".out.envbuild-0123abcd.old"],
        tmp_path / ".out.20261101",
    )
    for folder in (*killed, kept):
        (folder / "blobs").mkdir(parents=True)
        (folder / "blobs/part").write_text("part")
    out = tmp_path / "out"

    def write_one() -> None:
        with open_output_folder(out, "oci-layout", os.fspath) as folder:
            folder.publish()

    write_one()
    assert all(folder.exists() for folder in killed)  # of a minute ago
    monkeypatch.setattr("envbuild.oci.output_folder.STALE", -1)
    tmp_path.chmod(0o777)  # others can give any folder such a name
    write_one()
    assert all(folder.exists() for folder in killed)
    tmp_path.chmod(0o755)
    out.rmdir()
    with open_output_folder(out, "oci-layout", os.fspath) as live:
        assert not killed[0].exists() and killed[1].exists()  # the only layout of this name
        write_one()
        assert live.handle.is_dir() and (tmp_path / live.name).exists()
    write_one()
    assert sorted(tmp_path.iterdir()) == [kept, out]


def swap_unfinished(folder: Path, swap: Callable[[Path], object]) -> Callable[..., None]:
    """Return a writer of layers that calls `swap` with the unfinished layout in `folder` first, as another user can
    rename its entries."""

    def write_and_swap(*arguments: Any) -> None:
        with contextlib.suppress(StopIteration):
            swap(next(path for path in folder.iterdir() if path.name.startswith(".out.")))
        write_layer_tar(*arguments)

    return write_and_swap


def test_links_in_the_place_of_an_unfinished_layout_are_not_written_through(
    layers: tuple[LayerRecord, ...], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, own = tmp_path / "shared", tmp_path / "own"
    folder.mkdir()
    own.write_text("export PATH")
    moved = folder / "moved"

    def swap(unfinished: Path) -> None:
        if not moved.exists():
            unfinished.rename(moved)
            (unfinished / "blobs/sha256").mkdir(parents=True)
            for name in ("index.json", "oci-layout", "layer-0", "layer-1"):
                (unfinished / name).symlink_to(own)

    monkeypatch.setattr("envbuild.oci.layout.write_layer_tar", swap_unfinished(folder, swap))
    with pytest.raises(PublishError, match="another user replaced"):
        write(layers, folder / "out", store)
    assert own.read_text() == "export PATH"
    assert content(moved) == {}  # nothing of the layout remains


def test_a_folder_in_the_place_of_an_older_layout_is_not_removed(
    layers: tuple[LayerRecord, ...], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shared"
    out, thesis = folder / "out", folder / "thesis"
    thesis.mkdir(parents=True)
    (thesis / "thesis.tex").write_text("years of work")

    def swap(unfinished: Path) -> None:
        if thesis.exists():
            thesis.rename(out)

    monkeypatch.setattr("envbuild.oci.layout.write_layer_tar", swap_unfinished(folder, swap))
    with pytest.raises(PublishError, match="another user replaced"):
        write(layers[:1], out, store)
    assert [path.read_text() for path in folder.rglob("thesis.tex")] == ["years of work"]


def test_no_other_user_can_enter_an_unfinished_layout(
    layers: tuple[LayerRecord, ...], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = set()
    monkeypatch.setattr(
        "envbuild.oci.layout.write_layer_tar",
        swap_unfinished(tmp_path, lambda unfinished: modes.add(unfinished.stat().st_mode & 0o7777)),
    )
    before = os.umask(0o022)
    try:
        write(layers, tmp_path / "out", store)
    finally:
        os.umask(before)
    assert modes == {0o700}
    assert (tmp_path / "out").stat().st_mode & 0o7777 == 0o755


def test_the_folder_of_another_user_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = os.mkdir

    def mkdir(name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        made(name, mode, dir_fd=dir_fd)
        os.chown(name, 61001, 61001, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", mkdir)
    with (
        pytest.raises(PublishError, match="another user replaced"),
        open_output_folder(tmp_path / "out", "oci-layout", os.fspath),
    ):
        raise AssertionError("the folder is used")


@pytest.mark.parametrize("with_older", [True, False])
def test_a_folder_that_comes_to_the_place_meanwhile_is_not_removed(tmp_path: Path, with_older: bool) -> None:
    """Who may write the folder above can give any folder of the caller that name, with the mark of a layout in it."""
    shared, precious = tmp_path / "shared", tmp_path / "shared/precious"
    (precious / "blobs").mkdir(parents=True)
    for name in ("oci-layout", "blobs/notes"):
        (precious / name).write_text("mine")
    shared.chmod(0o2777)
    out = shared / "out"
    if with_older:
        out.mkdir()
    with (
        pytest.raises(PublishError, match="another user replaced it while it was written"),
        open_output_folder(out, "oci-layout", os.fspath) as folder,
    ):
        if with_older:
            out.rename(shared / "aside")
        precious.rename(out)
        folder.publish()
    assert (out / "blobs/notes").read_text() == "mine"
    assert {path.name for path in shared.iterdir()} == {"out", *(["aside"] if with_older else [])}


def test_what_is_at_the_place_is_checked_by_a_descriptor(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes").touch()

    def check(at: Path) -> None:
        out.rename(tmp_path / "aside")
        out.mkdir()
        assert [path.name for path in at.iterdir()] == ["notes"]
        raise PublishError("it has notes")

    with pytest.raises(PublishError, match="it has notes"), open_output_folder(out, "oci-layout", check):
        raise AssertionError("the folder is used")
    assert (tmp_path / "aside/notes").exists()


def test_an_older_folder_that_others_can_write_is_not_replaced(tmp_path: Path) -> None:
    """They could move a folder of the caller into it, where only the caller can remove what is in it."""
    out = tmp_path / "out"
    out.mkdir()
    with open_output_folder(out, "oci-layout", os.fspath) as folder:  # an empty one may be removed by any user
        (folder.handle / "oci-layout").touch()
        folder.publish()
    for spoil in (lambda: out.chmod(0o777), lambda: os.chown(out, 4711, -1)):
        out.chmod(0o755)
        spoil()
        with (
            pytest.raises(PublishError, match="so it is not replaced"),
            open_output_folder(out, "oci-layout", os.fspath),
        ):
            raise AssertionError("the folder is used")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
