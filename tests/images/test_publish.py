"""A built image to a registry and a folder, as a user publishes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from envbuild.core.digest import file_digest
from tests.support.image_project import Cli
from tests.support.index_wheels import installed
from tests.support.local_registry import serve, skopeo

pytestmark = pytest.mark.images

SPEC = """
schema: 1
description: published
target: cpu
base: debian:13
layers:
  python-packages: ["packaging==24.0", "click==8.1.7"]
"""


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Cli:
    folder = tmp_path_factory.mktemp("published")
    (folder / "images").mkdir()
    (folder / "images" / "app.yaml").write_text(SPEC)
    return Cli(folder, store)


def test_a_second_publish_sends_nothing_and_others_read_it(cli: Cli, tmp_path: Path) -> None:
    with serve(tmp_path / "registry") as registry:
        name = f"localhost:{registry.port}/team/app:1"
        first = cli.json("publish", "app", "--to", name)
        assert first["sent"] >= 3 and first["reference"] == name
        assert json.loads(skopeo("inspect", "--tls-verify=false", f"docker://{name}"))["Digest"] == first["digest"]
        again = cli.json("publish", "app", "--to", name)
        assert (again["sent"], again["digest"]) == (0, first["digest"])
        refused = cli.run("publish", "app", "--to", name, "--compression", "zstd", check=False)
        assert refused.returncode == 8 and "--move" in refused.stderr
        done = cli.run("export", f"docker://{name}", "--to", "squashfs", "-o", str(tmp_path / "app.sqsh"))
        assert done.returncode == 0 and (tmp_path / "app.sqsh").is_file()


def test_another_store_pulls_the_same_file_and_then_only_what_changed(cli: Cli, tmp_path: Path) -> None:
    """A publishes, B pulls; A adds one package, publishes; B pulls its pack and the tables."""
    other = Cli(tmp_path, tmp_path / "b")
    with serve(tmp_path / "registry") as registry:
        name = f"localhost:{registry.port}/team/app"
        made, sent = cli.json("make", "app"), cli.json("publish", "app", "--to", f"{name}:1")
        assert sent["sha256"] == made["sha256"]
        got = other.json("pull", f"{name}:1")
        assert file_digest(Path(got["path"])) == got["sha256"] == made["sha256"]
        (cli.project / "images/more.yaml").write_text(SPEC.replace('"click==8.1.7"', '"click==8.1.7", "idna==3.10"'))
        cli.json("lock", "more")
        more, sent = cli.json("make", "more"), cli.json("publish", "more", "--to", f"{name}:2")
        assert sent["sent_bytes"] < 5_000_000 < got["fetched_bytes"]
        two = other.json("pull", f"{name}:2", "-o", str(tmp_path / "more.sqsh"))
        assert two["fetched_bytes"] < 3_000_000
        assert file_digest(tmp_path / "more.sqsh") == two["sha256"] == more["sha256"]
        started = cli.run(
            "run", str(tmp_path / "more.sqsh"), "--", "python3", "-c", "import idna; print(idna.__version__)"
        )
        assert started.stdout.strip() == "3.10"


def test_a_puller_with_another_release_of_zstandard_gets_the_same_file(cli: Cli, tmp_path: Path) -> None:
    made, there = cli.json("make", "app"), f"oci:{tmp_path}/shared:1"
    cli.json("publish", "app", "--to", there)
    path = {"PYTHONPATH": str(installed(tmp_path / "other", "zstandard==0.22.0"))}
    program = "import zstandard; print(zstandard.ZSTD_VERSION)"
    command = [sys.executable, "-c", program]
    own, other = (
        subprocess.run(command, env=os.environ | env, capture_output=True, text=True, check=True).stdout
        for env in ({}, path)
    )
    assert own != other
    got = Cli(tmp_path, tmp_path / "b").json("pull", there, **path)
    assert file_digest(Path(got["path"])) == got["sha256"] == made["sha256"]


def test_a_folder_has_the_same_digest(cli: Cli, tmp_path: Path) -> None:
    made = cli.json("publish", "app", "--to", f"oci:{tmp_path}/shared")
    tag = made["reference"].rpartition(":")[2]
    assert tag.startswith("cpu-app-20")
    found = json.loads(skopeo("inspect", f"oci:{tmp_path}/shared:{tag}"))
    assert found["Digest"] == made["digest"]


def test_the_squashfs_file_is_published_alone(cli: Cli, tmp_path: Path) -> None:
    place = f"oci:{tmp_path}/alone:1"
    made = cli.json("publish", "app", "--to", place, "--squashfs-only")
    found = cli.json("show", place)
    assert found["lock"] and found["spec"] == SPEC and {layer["unit"] for layer in found["layers"]} > {"base"}
    got = Cli(tmp_path, tmp_path / "b").json("pull", place)
    assert file_digest(Path(got["path"])) == got["sha256"] == made["sha256"]
    refused = cli.run("publish", "app", "--to", place, "--squashfs-only", "--compression", "zstd", check=False)
    assert refused.returncode == 2 and "sends none" in refused.stderr


def test_a_destination_is_required_before_anything_is_built(cli: Cli) -> None:
    done = cli.run("publish", "app", "--to", "nowhere", check=False)
    assert done.returncode == 2 and "REGISTRY/REPOSITORY" in done.stderr


def test_a_layout_in_the_store_is_not_trusted(cli: Cli, tmp_path: Path) -> None:
    """In a store of a group another member may have written it: with links to files of this user."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"s" * 700)
    cli.run("export", "app", "--to", "oci")
    (layout,) = (cli.store / "artifacts").glob("app-*.oci")
    for blob in (layout / "blobs/sha256").iterdir():
        blob.unlink()
        blob.symlink_to(secret)
    (layout / "index.json").unlink()
    os.mkfifo(layout / "index.json")
    made = cli.json("publish", "app", "--to", f"oci:{tmp_path}/out:1")
    assert json.loads(skopeo("inspect", f"oci:{tmp_path}/out:1"))["Digest"] == made["digest"]
    assert all(blob.read_bytes() != secret.read_bytes() for blob in (tmp_path / "out/blobs/sha256").iterdir())


@pytest.mark.parametrize(
    ("package", "least"), [("ruff==0.12.0", 8e6), ("babel==2.17.0", 6e6)], ids=["large-file", "small-files"]
)
def test_with_zstd_a_change_travels_once(cli: Cli, tmp_path: Path, package: str, least: float) -> None:
    """The blob of a layer has the blocks of its pack, which are not sent again; other programs read the image."""
    (cli.project / "images/large.yaml").write_text(SPEC.replace('"click==8.1.7"', f'"click==8.1.7", "{package}"'))
    cli.json("lock", "large")
    other, zstd = Cli(tmp_path, tmp_path / "b"), ("--compression", "zstd")
    with serve(tmp_path / "registry") as registry:
        name = f"localhost:{registry.port}/team/app"
        cli.json("make", "app")
        cli.json("publish", "app", "--to", f"{name}:1", *zstd)
        other.json("pull", f"{name}:1")
        made, sent = cli.json("make", "large"), cli.json("publish", "large", "--to", f"{name}:2", *zstd)
        new = {layer.removeprefix("sha256:") for layer in set(made["layers"]) - set(cli.json("make", "app")["layers"])}
        packs = [path.stat().st_size for path in (cli.store / "packs").iterdir() if path.name[:64] in new]
        assert least < sum(packs) < sent["sent_bytes"] < 1.1 * sum(packs) + 1e6
        got = other.json("pull", f"{name}:2")
        assert file_digest(Path(got["path"])) == got["sha256"] == made["sha256"]
        assert sum(packs) < got["fetched_bytes"] < 1.1 * sum(packs) + 1e6
        (cli.project / "site.yaml").write_text("schema: 1\ncompression: zstd\n")
        again = cli.json("publish", "large", "--to", f"{name}:2")
        (cli.project / "site.yaml").unlink()
        assert again["sent"] == 0 and again["squashfs"] == sent["squashfs"]
        skopeo("copy", "--src-tls-verify=false", f"docker://{name}:2", f"oci:{tmp_path}/copy:2")
        third = Cli(tmp_path, tmp_path / "c")
        done = third.json("export", f"oci:{tmp_path}/copy:2", "--to", "squashfs", "-o", str(tmp_path / "app.sqsh"))
        assert [layer["diff_id"] for layer in done["layers"]] == made["layers"]
