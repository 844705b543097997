"""Base images that are archives, layouts or images of the project: what the lock names, and what is refused."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import ConflictError, InputError, LockError
from envbuild.core.store.store import Store
from envbuild.lock.base_image.lock_base import LockedBase, lock_base
from envbuild.lock.base_image.own_images import OwnImages
from envbuild.lock.inputs import image_blobs, input_origin, supplier
from envbuild.lock.model import VenvRule
from envbuild.net.download import Transfer
from envbuild.net.registry.reference import mirror_reference
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from envbuild.oci.sources.archive_stream import index_compressed_archive
from envbuild.oci.tar import decompress as decompression
from tests.support import local_registry as kit
from tests.support.local_registry import Layout
from tests.support.saved_image import write_saved_image

pytestmark = pytest.mark.unit

PACKAGES = {"legacy": "2.0", "numpy": "1.26", "old-thing": "1.0"}


def locked(base: str, folder: Path, **changes: Any) -> LockedBase:
    store = Store.open(folder / "store")
    site = Site(store.root, use_host=False)
    transport = Transport(site.network())
    values: dict[str, Any] = {"previous": None, "distribution": "debian:13", "python": "3.13", "folder": folder}
    arguments = (base, changes.pop("arch", "amd64"), site, transport, Transfer(transport, store), store)
    return lock_base(*arguments, SilentReporter(), **(values | changes))


def venv(python: str = "3.13", *packages: tuple[str, str], config: str = "home = /usr/bin\n") -> bytes:
    """Return a layer with a venv where envbuild has its own."""
    site_packages = f"opt/venv/lib/python{python}/site-packages"
    return kit.tar(
        kit.file("opt/venv/pyvenv.cfg", config.encode()),
        kit.symlink("opt/venv/bin/python", f"/usr/bin/python{python}"),
        *(kit.metadata(site_packages, name, version) for name, version in packages),
    )


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("packed", [False, True])
def test_an_archive_of_docker_save_results_in_one_digest(tmp_path: Path, mode: str, packed: bool) -> None:
    tars = [kit.system(), kit.tar(kit.file("srv/data", b"x"))]
    stored = [gzip.compress(content, mtime=0) for content in tars] if packed else []
    found = locked("./app.tar", tmp_path) if write_saved_image(tmp_path / "app.tar", tars, stored, mode=mode) else None
    assert found and found.image.reference == "./app.tar"
    assert found.image.env == {"A": "1"} and found.image.python == PACKAGES
    assert [digest for digest, _, _ in found.image.layers] == [kit.sha256(content) for content in stored or tars]
    assert {kind for _, _, kind in found.image.layers} == {kit.LAYER + ("+gzip" if packed else "")}
    store = Store.open(tmp_path / "store")
    assert all(store.has_blob(blob.sha256) for blob in image_blobs(found.image, manifest=True))
    write_saved_image(tmp_path / "again.tar", tars, stored)
    assert locked("./again.tar", tmp_path).image.digest == found.image.digest


def test_a_layout_has_the_digest_of_its_own_manifest(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    layout.add(layout.image([kit.system()]), "app:1")
    for base in ("oci:layout", "./layout", "oci:layout:1", f"oci:{layout.path}"):
        found = locked(base, tmp_path)
        assert found.image.digest == layout.listed[0]["digest"].removeprefix("sha256:")


def test_a_layer_of_another_size_in_the_store_is_written_again(tmp_path: Path) -> None:
    """Another member of a group may have put it there: it is neither read nor copied."""
    layout = Layout(tmp_path / "layout")
    layout.add(layout.image([kit.system()]), "app:1")
    found = locked("oci:layout", tmp_path)
    blob = Store.open(tmp_path / "store").blob(found.image.layers[0][0])
    content = blob.read_bytes()
    blob.write_bytes(content + b"more")
    assert locked("oci:layout", tmp_path).image == found.image
    assert blob.read_bytes() == content


def test_a_layer_of_another_size_than_its_manifest_names_is_refused(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    made = layout.image([kit.system()])
    manifest = json.loads((layout.path / "blobs/sha256" / made["digest"].removeprefix("sha256:")).read_bytes())
    manifest["layers"][0]["size"] += 1
    layout.add(layout.blob(json.dumps(manifest).encode(), kit.MANIFEST), "app:1")
    with pytest.raises(InputError, match="bytes, and its image names"):
        locked("oci:layout", tmp_path)


def test_an_image_of_the_project_is_taken_from_its_layout(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    layout.add(layout.image([kit.system()], compression="none"))
    asked = []

    @contextlib.contextmanager
    def own(name: str) -> Iterator[Path]:
        asked.append(name)
        yield layout.path

    assert locked("h100-nccl", tmp_path, own=OwnImages(own)).image.python == PACKAGES
    assert asked == ["h100-nccl"]
    with pytest.raises(LockError) as caught:
        locked("h100-nccl", tmp_path)
    assert caught.value.hint == "envbuild make h100-nccl"


def test_a_file_that_changed_is_locked_as_it_is_now(tmp_path: Path) -> None:
    write_saved_image(tmp_path / "app.tar", [kit.system()])
    first = locked("./app.tar", tmp_path)
    write_saved_image(tmp_path / "app.tar", [kit.system(), kit.tar(kit.file("new"))])
    assert locked("./app.tar", tmp_path, previous=first.image).image.digest != first.image.digest


@pytest.mark.parametrize(
    "base", ["./missing.tar", "oci:missing", "./empty.tar", "./empty", "./app.tar:2", f"./{'a' * 5000}"]
)
def test_what_is_not_an_image_is_refused(tmp_path: Path, base: str) -> None:
    write_saved_image(tmp_path / "app.tar", [kit.system()])
    (tmp_path / "empty.tar").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError) as caught:
        locked(base, tmp_path)
    assert caught.value.hint


def test_an_image_of_another_architecture_is_refused(tmp_path: Path) -> None:
    write_saved_image(tmp_path / "app.tar", [kit.system()], arch="arm64")
    with pytest.raises(ConflictError):
        locked("./app.tar", tmp_path)


@pytest.mark.parametrize("packed", [False, True])
def test_a_damaged_layer_never_enters_the_store(tmp_path: Path, packed: bool) -> None:
    content = kit.system()
    damaged = content.replace(b"Version: 1.22", b"Version: 1.23")
    assert damaged != content
    stored = gzip.compress(damaged) if packed else damaged
    write_saved_image(tmp_path / "app.tar", [content], [stored])
    with pytest.raises(InputError, match="is damaged"):
        locked("./app.tar", tmp_path)
    assert not Store.open(tmp_path / "store").has_blob(kit.sha256(stored))


def test_a_venv_of_the_same_python_is_extended_and_its_packages_count(tmp_path: Path) -> None:
    layers = [kit.system(), venv("3.13", ("click", "8.1.7"))]
    write_saved_image(tmp_path / "app.tar", layers)
    found = locked("./app.tar", tmp_path).image
    assert found.venv is VenvRule.EXTENDED
    assert found.python == {"click": "8.1.7"}  # what the interpreter alone has cannot be imported
    open_venv = venv("3.13", ("numpy", "2.4"), config="include-system-site-packages = true\n")
    write_saved_image(tmp_path / "app.tar", [kit.system(), open_venv])
    assert locked("./app.tar", tmp_path).image.python == PACKAGES | {"numpy": "2.4"}


@pytest.mark.parametrize(
    "layer",
    [
        venv("3.11", ("click", "8.1.7")),
        kit.tar(kit.file("opt/venv/lib/python3.13/site-packages/x.py")),
        kit.tar(kit.file("opt/venv", b"not a folder")),
    ],
    ids=["python", "incomplete", "file"],
)
def test_another_venv_is_replaced_and_its_packages_do_not_count(tmp_path: Path, layer: bytes) -> None:
    write_saved_image(tmp_path / "app.tar", [kit.system(), layer])
    found = locked("./app.tar", tmp_path).image
    assert found.venv is VenvRule.REPLACED and found.python == PACKAGES


def test_a_layer_is_refused_whose_folder_the_base_has(tmp_path: Path) -> None:
    write_saved_image(tmp_path / "app.tar", [kit.system(), kit.tar(kit.file("opt/ucx/lib/libucp.so"))])
    prefixes = (("ucx", "/opt/ucx"), ("ucc", "/opt/ucc"))
    with pytest.raises(ConflictError) as caught:
        locked("./app.tar", tmp_path, prefixes=prefixes, where={"ucx": "images/x.yaml:7:3"})
    (finding,) = caught.value.findings
    assert finding.where == "images/x.yaml:7:3" and "/opt/ucx" in finding.message


@pytest.mark.parametrize(
    ("base", "name"),
    [
        ("./My_App-1.2.tar.gz", "my-app-1-2"),
        ("docker-archive:/a/b/app.tar:x/y:1", "app"),
        ("oci:dir/", "dir"),
        ("oci:dir:1", "dir"),
        ("../.tar", "image"),
        ("h100-nccl", "h100-nccl"),
    ],
)
def test_an_offline_mirror_has_it_below_local(base: str, name: str) -> None:
    assert mirror_reference(base, kit.DIGEST) == f"local/{name}@sha256:{kit.DIGEST}"
    assert mirror_reference("nvcr.io/nvidia/pytorch:25.10-py3", kit.DIGEST) == "nvcr.io/nvidia/pytorch:25.10-py3"


def test_no_registry_provides_it(tmp_path: Path) -> None:
    write_saved_image(tmp_path / "app.tar", [kit.system()])
    (blob, *_) = image_blobs(locked("./app.tar", tmp_path).image)
    assert input_origin(blob) == "oci:local/app"
    assert supplier(Site(tmp_path), "oci:local/app") == ""
    assert supplier(Site(tmp_path, mirrors={"oci:": ("/mirror",)}), "oci:local/app") == "mirror"


@pytest.mark.parametrize("right", [True, False])
def test_a_layer_that_is_a_bomb_is_refused_where_that_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: bool
) -> None:
    """With any digest: it was unpacked to its end, only to compare that."""
    monkeypatch.setattr("envbuild.core.bombs.SUSPECT", 1 << 20)
    bomb = kit.system() + bytes(24 << 20)
    unpacked: list[int] = []
    decompress = decompression.decompress

    def count(stream: Any) -> Iterator[bytes]:
        for piece in decompress(stream):
            unpacked.append(len(piece))
            yield piece

    monkeypatch.setattr(decompression, "decompress", count)
    write_saved_image(tmp_path / "app.tar", [bomb if right else kit.system()], [gzip.compress(bomb)])
    with pytest.raises(InputError, match="it is a bomb"):
        locked("./app.tar", tmp_path)
    assert sum(unpacked) < 12 << 20
    assert not any(path.stat().st_size > 1 << 12 for path in (tmp_path / "store/blobs/sha256").iterdir())


def test_a_compressed_archive_that_is_a_bomb_is_refused_before_it_is_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envbuild.core.bombs.SUSPECT", 1 << 20)
    path = tmp_path / "bomb.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo("layer.tar")
        entry.size = 16 << 20
        archive.addfile(entry, io.BytesIO(b"x" * entry.size))
    with pytest.raises(InputError, match="it is a bomb"):
        index_compressed_archive(path)
    monkeypatch.setattr("envbuild.core.bombs.SUSPECT", 16 << 20)
    assert list(index_compressed_archive(path).places) == ["layer.tar"]


@pytest.mark.parametrize(
    ("layers", "other"),
    [(("sha256:1", "sha256:2"), False), (("sha256:1",), True), (("sha256:2", "sha256:1"), True), (None, None)],
)
def test_an_image_that_was_built_with_other_layers_is_another_one(
    layers: tuple[str, ...] | None, other: bool | None
) -> None:
    lock: Any = SimpleNamespace(base_image=SimpleNamespace(layers=(("1", 5, "x"), ("2", 5, "x"))))
    assert OwnImages(layers=lambda name: layers).is_other("below", lock) is other
