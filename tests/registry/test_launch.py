"""``envbuild launch docker://…``: variables and architecture of an image in a registry, and its name for pyxis."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.core.errors import SpecError
from envbuild.launch.launch import launch_image
from envbuild.launch.model import Request
from tests.support import foreign_images
from tests.support.launching import shipped_workspace
from tests.support.local_registry import Layout, file, serve, tar

pytestmark = pytest.mark.registry

SITE = 'slurm: {version: "23.11.4", pyxis: "0.20.0", enroot: "3.5.0", pmix: [pmix]}\n'


def test_an_image_of_a_registry_starts_by_its_reference(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    config = {"Env": ["PATH=/usr/bin", "NCCL_NET=Socket", "PYTORCH_VERSION=2.9"]}
    layout.add(foreign_images.image(layout, [tar(file("a", b"1"))], config=config), "x")
    request = Request(("train.py",), target="h100-ib", nodes=2)
    with serve(tmp_path / "registry") as server:
        server.push(f"oci:{layout.path}:x", "team/net:1")
        at = shipped_workspace(f'{SITE}mirrors: {{"oci:{server.host}/": ["{server.url}"]}}\n', tmp_path)
        found = launch_image(f"docker://{server.host}/team/net:1", "sbatch", request, at)
        assert f"'--container-image={server.host}#team/net:1'" in found.written.text
        assert "--container-env=NCCL_NET" in found.written.text
        assert "[ -r " not in found.written.text
        container = launch_image(f"docker://{server.host}/team/net:1", "docker", Request(("x",), target="h100-ib"), at)
        start = f"\n  {server.host}/team/net:1 torchrun --standalone --nnodes=1 --nproc_per_node=8 --no_python x\n"
        assert container.written.text.endswith(start)
        with pytest.raises(SpecError, match="is for linux/amd64, and nodes of target 'gb200-nvl' are linux/arm64"):
            launch_image(f"docker://{server.host}/team/net:1", "srun", Request(("x",), target="gb200-nvl"), at)
        index = Layout(tmp_path / "index")  # the login node may have another architecture than the nodes
        contents = [tar(file("a", b"2"))]
        images = [index.image(contents, arch=arch) for arch in ("amd64", "arm64")]
        index.add(index.index(images), "x")
        server.push(f"oci:{index.path}:x", "team/both:1", "--all")
        request = Request(("x",), target="gb200-nvl")
        assert launch_image(f"docker://{server.host}/team/both:1", "srun", request, at).written.text
