"""One image by every way that it can come, from the programs that write them: the same file."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import zstandard

from envbuild.core.errors import EngineError, InputError, SpecError
from envbuild.export.output_path import Output
from envbuild.oci.sources import docker_daemon
from tests.support import foreign_images as kit
from tests.support.command import envbuild
from tests.support.dockerd import run
from tests.support.foreign_images import made, workspace
from tests.support.local_registry import Layout, serve, skopeo

pytestmark = pytest.mark.clients


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Return the image as an OCI layout."""
    own = Layout(tmp_path / "layout")
    own.add(kit.image(own, kit.layers()), "app:1")
    return own


@pytest.fixture
def want(layout: Layout, tmp_path: Path) -> str:
    """Return the sha256 of its file."""
    return made(f"oci:{layout.path}:app:1", workspace(tmp_path / "want")).artifact.sha256


def docker_archive(layout: Layout, path: Path) -> Path:
    """Return what skopeo and podman write."""
    skopeo("copy", f"oci:{layout.path}", f"docker-archive:{path}:example.org/app:1")
    return path


def new_form(layout: Layout, path: Path, mode: str = "w") -> Path:
    """Return what docker 25 and newer write: an OCI layout, and Docker's manifest.json for it."""
    index = json.loads((layout.path / "index.json").read_bytes())
    manifest = json.loads((layout.path / "blobs/sha256" / index["manifests"][0]["digest"][7:]).read_bytes())
    names = [f"blobs/sha256/{part['digest'][7:]}" for part in (manifest["config"], *manifest["layers"])]
    listed = [{"Config": names[0], "RepoTags": ["app:1"], "Layers": names[1:]}]
    (layout.path / "manifest.json").write_text(json.dumps(listed))
    with tarfile.open(path, mode) as tar:
        for name in sorted(path.name for path in layout.path.iterdir()):
            tar.add(layout.path / name, name)
    (layout.path / "manifest.json").unlink()
    return path


def test_an_oci_layout_and_its_archive(layout: Layout, want: str, tmp_path: Path) -> None:
    at = workspace(tmp_path / "store")
    skopeo("copy", f"oci:{layout.path}", f"oci-archive:{tmp_path / 'oci.tar'}")
    for source in (f"{layout.path}", f"oci:{layout.path}:1", f"oci-archive:{tmp_path / 'oci.tar'}"):
        assert made(source, at).artifact.sha256 == want
    assert made(f"docker-archive:{tmp_path / 'oci.tar'}", workspace(tmp_path / "cold")).artifact.sha256 == want


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
@pytest.mark.parametrize("form", ["skopeo", "new"])
def test_docker_archives(form: str, compression: str, layout: Layout, want: str, tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    (docker_archive if form == "skopeo" else new_form)(layout, path)
    if compression:
        content = path.read_bytes()
        path = path.with_name(f"image.tar{compression}")
        path.write_bytes(gzip.compress(content, 1) if compression == ".gz" else zstandard.compress(content))
    done = made(str(path), workspace(tmp_path / "store"))
    assert done.artifact.sha256 == want
    assert done.artifact.path.name == f"image-{done.identity[7:19]}.sqsh"
    again = made(f"docker-archive:{path}:app:1", workspace(tmp_path / "store"))
    assert again.artifact.sha256 == want and all(layer.cached for layer in again.layers)


def test_a_registry(layout: Layout, want: str, tmp_path: Path) -> None:
    with serve(tmp_path / "registry") as registry:
        registry.push(f"oci:{layout.path}", "some/app:1")
        done = made(f"docker://{registry.host}/some/app:1", workspace(tmp_path / "store"))
    assert done.artifact.sha256 == want


def test_docker_save_and_the_docker_engine(
    layout: Layout,
    want: str,
    dockerd: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", dockerd)
    run("docker", "-H", dockerd, "load", "-i", str(docker_archive(layout, tmp_path / "in.tar")))
    run("docker", "-H", dockerd, "save", "-o", str(tmp_path / "out.tar"), "example.org/app:1")
    done = made(f"{tmp_path / 'out.tar'}", workspace(tmp_path / "archive"))
    assert done.artifact.sha256 == want
    at = workspace(tmp_path / "store")
    cold = made("docker-daemon:example.org/app:1", at)
    assert cold.artifact.sha256 == want and not any(layer.cached for layer in cold.layers)
    assert cold.artifact.path.name == f"app-1-{cold.identity[7:19]}.sqsh"
    assert cold.identity == json.loads(run("docker", "-H", dockerd, "image", "inspect", "example.org/app:1"))[0]["Id"]

    thrown = made("docker-daemon:example.org/app:1", workspace(tmp_path / "thrown"), cache=False)
    assert thrown.artifact.sha256 == want

    def no_stream(*_: object) -> None:
        raise AssertionError("all layers are packed: nothing is to be sent")

    monkeypatch.setattr(docker_daemon, "save_image", no_stream)
    warm = made(f"dockerd://{cold.identity}", at, tmp_path / "warm.sqsh")
    assert warm.artifact.sha256 == want and all(layer.cached for layer in warm.layers)


def test_a_layer_that_docker_has_twice(
    dockerd: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", dockerd)
    first, second, _ = kit.layers()
    own = Layout(tmp_path / "twice")
    own.add(kit.image(own, [first, second, first, second]), "twice:1")
    want = made(f"oci:{own.path}", workspace(tmp_path / "want")).artifact.sha256
    run("docker", "-H", dockerd, "load", "-i", str(docker_archive(own, tmp_path / "twice.tar")))
    run("docker", "-H", dockerd, "save", "-o", str(tmp_path / "out.tar"), "example.org/app:1")
    for number, source in enumerate(
        (f"{tmp_path / 'twice.tar'}", f"{tmp_path / 'out.tar'}", "docker-daemon:example.org/app:1")
    ):
        assert made(source, workspace(tmp_path / f"store-{number}")).artifact.sha256 == want


def test_images_that_docker_does_not_have(
    dockerd: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", dockerd)
    with pytest.raises(InputError, match="has no image nothing:1") as caught:
        made("docker-daemon:nothing:1", workspace(tmp_path / "store"))
    assert caught.value.exit_code == 10
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(EngineError, match="no Docker Engine") as broken:
        made("docker-daemon:nothing:1", workspace(tmp_path / "store"))
    assert broken.value.exit_code == 5 and "--to oci" not in broken.value.hint


def test_damaged_archives(layout: Layout, tmp_path: Path) -> None:
    at = workspace(tmp_path / "store")
    whole = docker_archive(layout, tmp_path / "whole.tar").read_bytes()
    (tmp_path / "short.tar").write_bytes(whole[: len(whole) // 2])
    layer = kit.layers()[1]
    (tmp_path / "other.tar").write_bytes(whole.replace(layer[:2000], layer[:1000] + b"x" + layer[1001:2000]))
    (tmp_path / "short.tar.gz").write_bytes(gzip.compress(whole, 1)[:2_000_000])
    (tmp_path / "text.tar").write_text("text")
    for name, why in (
        ("short.tar", "is not an archive of an image|truncated"),
        ("other.tar", "layer 2 of 3"),
        ("short.tar.gz", "cannot be unpacked|is not an archive"),
        ("text.tar", "is not an archive of an image"),
    ):
        with pytest.raises(InputError, match=why) as caught:
            made(str(tmp_path / name), at)
        assert caught.value.exit_code == 10 and caught.value.hint
    assert not list((at.store.root / "artifacts").iterdir())


def test_the_command(layout: Layout, want: str, tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "new/image.sqsh"
    words = ("export", str(layout.path), "--to", "squashfs", "-o", str(out), "--sha256", "--json")
    done = envbuild(*words, ENVBUILD_STORE=str(store))
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["path"], data["sha256"], data["size"]) == (str(out), want, out.stat().st_size)
    assert len(data["layers"]) == 3 and not any(layer["cached"] for layer in data["layers"])
    assert data["repairs"] and all(f"  {line}" in done.stderr for line in data["repairs"])
    again = envbuild("export", str(layout.path), "--to", "squashfs", "--jobs", "1", ENVBUILD_STORE=str(store))
    assert again.returncode == 0 and "0 layers packed, 3 packed before" in again.stdout
    assert "write images: /a/shared/folder" in again.stdout  # the store is on a disk of this machine
    third = envbuild("export", f"oci:{layout.path}", "--to", "squashfs", ENVBUILD_STORE=str(store))
    assert "up to date, nothing to do" in third.stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--platform", "linux/riscv64"], 3, "hint: --platform linux/amd64"),
        (["--compression", "lzo"], 2, "hint: it is zstd, lz4, gzip, none"),
        (["--compression", "none", "--level", "3"], 2, "hint: leave --level out"),
        (["--block", "64K"], 2, "hint: it is 128K, 256K, 512K, 1M"),
        (["-o", ""], 2, "hint: name a file, e.g. -o image.sqsh, or leave it out"),
        (["-o", __file__ + "/"], 8, "a file with its name exists"),
    ],
)
def test_the_command_refuses(words: list[str], code: int, message: str, layout: Layout, tmp_path: Path) -> None:
    done = envbuild("export", str(layout.path), "--to", "squashfs", *words, ENVBUILD_STORE=str(tmp_path / "store"))
    assert done.returncode == code and message in done.stderr and "Traceback" not in done.stderr
    other = envbuild("export", str(layout.path), "--to", "oci", ENVBUILD_STORE=str(tmp_path / "store"))
    assert other.returncode == 2 and "--to oci is for images of the project" in other.stderr


@pytest.mark.parametrize("out", [".", "there", "there/", "new/", "new/deep/."])
def test_a_folder_takes_a_file_of_the_images_own_name(out: str, layout: Layout, tmp_path: Path) -> None:
    """`-o new/` made a file called new, and `-o there` was refused."""
    at = tmp_path / "at"
    (at / "there").mkdir(parents=True)
    command = [sys.executable, "-m", "envbuild", "export", str(layout.path), "--to", "squashfs", "--json", "-o", out]
    paths = {"ENVBUILD_STORE": str(tmp_path / "store"), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **paths}, cwd=at)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    (file,) = (at / out).glob("*.sqsh")
    assert file.name == f"layout-{data['config'][7:19]}.sqsh" and at / data["path"] == file


def test_the_source_image_cannot_be_the_output_folder(layout: Layout, tmp_path: Path) -> None:
    for folder in (layout.path / "blobs", layout.path / "blobs/sha256"):
        with pytest.raises(SpecError, match="is the image that is to be exported"):
            Output(folder).prepare(str(layout.path))


@pytest.mark.parametrize("name", ["pipe", "link-to-null", "-", "LAYOUT/index.json", "BLOB"])
def test_pipes_devices_and_source_blobs_are_not_replaced(name: str, layout: Layout, tmp_path: Path) -> None:
    """A finished file is renamed into place: over a pipe or a device it would take it away from everybody."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link-to-null").symlink_to("/dev/null")
    blob = min((layout.path / "blobs/sha256").iterdir())
    out = {"BLOB": str(blob), "-": "-"}.get(name, name.replace("LAYOUT", str(layout.path)))
    path = tmp_path / out
    before = path.lstat() if out != "-" else None
    command = [sys.executable, "-m", "envbuild", "export", str(layout.path), "--to", "squashfs", "-o", out]
    paths = {"ENVBUILD_STORE": str(tmp_path / "store"), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **paths}, cwd=tmp_path
    )
    assert done.returncode == 2 and "hint: name a" in done.stderr, done.stderr
    if before is None:
        assert not (tmp_path / "-").exists()
    else:
        assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)


@pytest.mark.parametrize("name", ["null", "stdout", "new"])
def test_devices_are_refused_as_outputs(name: str) -> None:
    """Not with the command: root's would put the file in their place, if this were wrong."""
    with pytest.raises(SpecError, match="is not a file"):
        Output(Path("/dev") / name).prepare("docker://app:1")


def test_a_link_is_replaced_and_its_target_is_unchanged(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "old.sqsh").write_bytes(b"old")
    (tmp_path / "image.sqsh").symlink_to("old.sqsh")
    words = ("export", str(layout.path), "--to", "squashfs", "-o", str(tmp_path / "image.sqsh"))
    done = envbuild(*words, ENVBUILD_STORE=str(tmp_path / "store"))
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "image.sqsh").is_symlink() and (tmp_path / "old.sqsh").read_bytes() == b"old"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_store_that_is_full(layout: Layout, want: str, tmp_path: Path) -> None:
    """The message names the store, and nothing remains; without packs it needs no room for them."""
    small, out = tmp_path / "small", tmp_path / "image.sqsh"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "small", str(small)], check=True)
    try:
        done = envbuild("export", f"oci:{layout.path}", "--to", "squashfs", "-o", str(out), ENVBUILD_STORE=str(small))
        assert done.returncode == 5, done
        message = (
            f"error: the store {small} is full: No space left on device\nhint: envbuild store gc, or set ENVBUILD_STORE"
        )
        assert message in done.stderr
        assert not out.exists() and not any(path.is_file() for path in (small / "tmp").rglob("*"))
        straight = ("export", f"oci:{layout.path}", "--to", "squashfs", "-o", str(out), "--no-cache")
        assert envbuild(*straight, ENVBUILD_STORE=str(small)).returncode == 0
        assert hashlib.sha256(out.read_bytes()).hexdigest() == want
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
