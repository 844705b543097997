"""OCI layouts and Docker archives, read by the programs that they are made for."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import EngineError
from envbuild.core.store.store import LayerRecord, Store
from envbuild.oci.config import ImageConfig
from envbuild.oci.docker_engine import load_image
from envbuild.oci.layout import Layout, write_layout
from tests.support import tiny_root as kit
from tests.support.dockerd import run
from tests.support.stored_layers import EPOCH, layer
from tests.support.tools import require_tools

pytestmark = pytest.mark.clients

CONFIG = ImageConfig(
    env={"PATH": "/usr/bin", "WORDS": 'two "words" $HOME \\'},
    cmd=("/bin/sh", "-c", 'cat one; echo "$WORDS"; test ! -e three && ls -l'),
    workdir="/data",
    labels={"org.opencontainers.image.title": "tiny"},
)
OUTPUT = 'one\ntwo "words" $HOME \\\n'


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def layers(store: Store) -> tuple[LayerRecord, ...]:
    """Return the host's shell and a few programs, and a layer that removes and adds files."""

    def root(tree: Path) -> None:
        for place, path in kit.host_files():
            target = tree / place
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
        (tree / "bin").symlink_to("usr/bin")
        (tree / "data").mkdir()
        (tree / "data/one").write_text("one\n")
        (tree / "data/three").write_text("three\n")

    def change(tree: Path) -> None:
        (tree / "data").mkdir()
        (tree / "data/two").write_text("two\n")
        os.mknod(tree / "data/three", 0o20000, os.makedev(0, 0))

    if os.geteuid() != 0:
        pytest.skip("only root can make a deletion")
    base = layer(store, "base", root)
    return base, layer(store, "change", change, [base])


def layout(layers: tuple[LayerRecord, ...], store: Store, out: Path, **options: Any) -> Layout:
    return write_layout(layers, CONFIG, out, store, epoch=EPOCH, name="tiny:1", **options)


@pytest.mark.parametrize("compression", ["gzip", "zstd", "none"])
def test_skopeo_reads_a_layout(compression: str, layers: tuple[LayerRecord, ...], store: Store, tmp_path: Path) -> None:
    require_tools("skopeo")
    made = layout(layers, store, tmp_path / "out", compression=compression)
    source = f"oci:{made.path}:tiny:1"
    seen = json.loads(run("skopeo", "inspect", source))
    assert seen["Digest"] == made.manifest_digest
    assert seen["Layers"] == [entry.digest for entry in made.layers]
    config = json.loads(run("skopeo", "inspect", "--config", source))
    assert config["config"]["Env"] == ["PATH=/usr/bin", CONFIG.env["WORDS"].join(("WORDS=", ""))]
    # a copy reads and checks every blob; uncompressed, it must give the layers back
    run("skopeo", "copy", "--quiet", "--insecure-policy", "--dest-decompress", source, f"dir:{tmp_path / 'dir'}")
    manifest = json.loads((tmp_path / "dir/manifest.json").read_bytes())
    assert [entry["digest"] for entry in manifest["layers"]] == [record.diff_id for record in layers]


def test_skopeo_reads_docker_types(layers: tuple[LayerRecord, ...], store: Store, tmp_path: Path) -> None:
    """Through its ``dir:`` form, which is what a registry would give: manifest and blobs."""
    require_tools("skopeo")
    made = layout(layers, store, tmp_path / "out", docker=True)
    folder = tmp_path / "dir"
    folder.mkdir()
    (folder / "version").write_text("Directory Transport Version: 1.1\n")
    for path in (made.path / "blobs/sha256").iterdir():
        name = "manifest.json" if path.name in made.manifest_digest else path.name
        shutil.copy(path, folder / name)
    raw = json.loads(run("skopeo", "inspect", "--raw", f"dir:{folder}"))
    assert raw["mediaType"] == "application/vnd.docker.distribution.manifest.v2+json"
    target = f"docker-archive:{tmp_path / 'archive.tar'}:tiny:1"
    run("skopeo", "copy", "--quiet", "--insecure-policy", f"dir:{folder}", target)
    seen = json.loads(run("skopeo", "inspect", "--config", f"docker-archive:{tmp_path / 'archive.tar'}"))
    assert seen["rootfs"]["diff_ids"] == [record.diff_id for record in layers]


def test_buildah_takes_a_layout(layers: tuple[LayerRecord, ...], store: Store, tmp_path: Path) -> None:
    require_tools("buildah")
    made = layout(layers, store, tmp_path / "out")
    script = f"""
        set -e
        b="buildah --root {tmp_path}/root --runroot {tmp_path}/run"
        c=$($b from oci:{made.path}:tiny:1)
        $b run --isolation chroot "$c" -- /bin/sh -c 'cat one; echo "$WORDS"; test ! -e three'
        $b rm "$c" >/dev/null
    """
    assert run("unshare", "--mount", "sh", "-c", script) == OUTPUT


def test_docker_loads_and_runs(
    layers: tuple[LayerRecord, ...], store: Store, dockerd: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", dockerd)
    reporter = SilentReporter()
    image = load_image(layers, CONFIG, store, epoch=EPOCH, reference="envbuild/tiny", reporter=reporter)
    assert image == layout(layers, store, tmp_path / "out").config_digest
    output = run("docker", "-H", dockerd, "run", "--rm", "--network", "none", "envbuild/tiny:latest")
    assert output.startswith(OUTPUT)
    assert "two" in output.removeprefix(OUTPUT)
    seen = json.loads(run("docker", "-H", dockerd, "image", "inspect", image))[0]
    assert seen["RepoTags"] == ["envbuild/tiny:latest"]
    assert seen["RootFS"]["Layers"] == [record.diff_id for record in layers]
    assert seen["Created"] == "2023-11-14T22:13:20Z"


def test_docker_gets_no_damaged_image(
    layers: tuple[LayerRecord, ...], store: Store, dockerd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", dockerd)
    bad = layer(store, "bad", lambda tree: (tree / "file").write_text("before"))
    (store.layer_tree(bad.diff_id) / "file").write_text("behind")
    with pytest.raises(EngineError, match="reads as"):
        load_image([layers[0], bad], CONFIG, store, epoch=EPOCH, reference="damaged:1", reporter=SilentReporter())
    assert "damaged" not in run("docker", "-H", dockerd, "images", "--format", "{{.Repository}}")


@pytest.mark.parametrize(
    ("host", "reason"), [("unix:///nowhere/docker.sock", "no Docker Engine"), ("tcp://127.0.0.1:1", "no Docker Engine")]
)
def test_without_docker_the_error_has_a_hint(
    host: str, reason: str, layers: tuple[LayerRecord, ...], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(EngineError, match=reason) as caught:
        load_image(layers, CONFIG, store, epoch=EPOCH, reference="tiny:1", reporter=SilentReporter())
    assert caught.value.exit_code == 5
    assert "docker info" in caught.value.hint
