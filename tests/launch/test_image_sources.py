"""Images of a launch: a file, an image of a registry, an image of the project; the site's driver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import ConflictError, SpecError
from envbuild.launch.image_sources import find_image
from envbuild.launch.launch import launch_image
from envbuild.launch.model import Request
from envbuild.oci.sources.kinds import SOURCES
from envbuild.spec.workspace import Workspace
from tests.support import foreign_images
from tests.support.launching import launch_shipped, shipped_workspace, write_squashfs
from tests.support.local_registry import Layout, file, tar

pytestmark = pytest.mark.unit

SITE = 'slurm: {version: "23.11.4", pyxis: "0.20.0", enroot: "4.0.1", pmix: [pmix]}\nimages: /fs/images\n'
RECORD: dict[str, Any] = {
    "image": "net",
    "target": "azure-ndv4",
    "order": ["nccl", "torch", "openmpi"],
    "versions": {"nccl": "2.30.7", "torch": "2.15.0"},
}
ENVIRONMENT = "PATH=/usr/bin\nNCCL_NET=Socket\nPYTORCH_VERSION=2.15.0\n"


@pytest.fixture
def at(tmp_path: Path) -> Workspace:
    return shipped_workspace(SITE, tmp_path)


def image_file(folder: Path, environment: str = ENVIRONMENT, arch: str = "amd64", **changes: Any) -> Path:
    export = {"image": {"architecture": arch}}
    files = {"etc/environment": environment, "etc/envbuild/export.json": json.dumps(export)}
    if changes.pop("recorded", True):
        files["etc/envbuild/resolution.json"] = json.dumps({**RECORD, **changes})
    return write_squashfs(folder, files)


def test_the_variables_of_a_file_are_read_from_it(at: Workspace, tmp_path: Path) -> None:
    image = find_image(str(image_file(tmp_path)), at)
    assert (image.name, image.target, image.arch) == ("net", "azure-ndv4", "amd64")
    assert image.env["NCCL_NET"] == "Socket"
    assert image.layers == ("nccl", "torch", "openmpi")
    launch = launch_image(str(tmp_path / "net.sqsh"), "srun", Request(("all_reduce_perf",)), at)
    assert f"--container-image={tmp_path}/net.sqsh" in launch.written.text
    assert "--container-env=NCCL_NET" in launch.written.text  # of the finished file, not of a spec
    assert "export NCCL_NET=IB" in launch.written.text


def test_a_server_of_ssh_is_found_in_the_file_or_in_the_lock(at: Workspace, tmp_path: Path) -> None:
    assert find_image(str(image_file(tmp_path)), at).ssh_server is False
    files = {"etc/envbuild/resolution.json": json.dumps(RECORD), "usr/sbin/sshd": "x"}
    assert find_image(str(write_squashfs(tmp_path, files)), at).ssh_server is True
    assert find_image("cpu-ucx", at).ssh_server is False  # locked, not built
    assert find_image("cpu-ucc", at).ssh_server is None  # not locked


def test_an_image_of_another_architecture_is_refused(at: Workspace, tmp_path: Path) -> None:
    file = image_file(tmp_path, arch="arm64")
    with pytest.raises(SpecError) as caught:
        launch_image(str(file), "srun", Request(("hostname",)), at)
    assert str(caught.value) == (
        "net is for linux/arm64, and nodes of target 'azure-ndv4' are linux/amd64\n"
        "hint: take an image of that architecture, or --target of such nodes"
    )
    assert caught.value.exit_code == 2


def test_the_architecture_that_an_image_states_is_on_one_line(at: Workspace, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        launch_image(str(image_file(tmp_path, arch="x\nhint: run y\x1b[2J")), "srun", Request(("hostname",)), at)
    assert "net is for linux/x\\nhint: run y\\x1b[2J, and nodes" in caught.value.message


def test_an_image_without_a_target_needs_one(at: Workspace, tmp_path: Path) -> None:
    file = image_file(tmp_path, recorded=False)
    with pytest.raises(SpecError, match="net does not record the target that it is for") as caught:
        find_image(str(file), at)
    assert caught.value.hint == f"type --target NAME, one of: {', '.join(at.project.targets())}"
    assert find_image(str(file), at, "h100-ib").target == "h100-ib"
    launch = launch_image(str(file), "srun", Request(("python", "train.py"), target="h100-ib"), at)
    assert "export NCCL_NET=IB" in launch.written.text


def test_a_target_that_does_not_exist(at: Workspace, tmp_path: Path) -> None:
    file = image_file(tmp_path, target="h100ib")
    with pytest.raises(SpecError, match="no target is called 'h100ib'"):
        launch_image(str(file), "srun", Request(("hostname",)), at)


@pytest.mark.parametrize("kind", [name for name in SOURCES if name not in ("registry", "layout")])
def test_images_that_nodes_cannot_pull_are_refused(kind: str, at: Workspace) -> None:
    with pytest.raises(SpecError, match="is not an image that nodes can pull"):
        find_image(f"{SOURCES[kind].prefixes[0]}x", at)


def test_an_image_that_is_not_built_is_printed_with_a_warning(tmp_path: Path) -> None:
    launch = launch_shipped("h100-nccl", "srun", SITE, tmp_path, ["python", "train.py"], nodes=2)
    assert not launch.plan.image.built
    assert any("is not built" in line and "envbuild make h100-nccl" in line for line in launch.plan.warnings)
    assert launch.plan.image.squashfs == "/fs/images/h100-nccl.sqsh"
    assert launch.plan.image.env["PYTORCH_VERSION"]


def test_a_folder_that_this_machine_does_not_read_is_named(tmp_path: Path) -> None:
    folder = f"{tmp_path}/{'a' * 300}"  # as a folder without permission: each read of it is an error
    launch = launch_shipped("h100-nccl", "srun", SITE.replace("/fs/images", folder), tmp_path, ["hostname"])
    assert launch.plan.image.squashfs == f"{folder}/h100-nccl.sqsh"


def test_the_reference_is_that_of_publish(tmp_path: Path) -> None:
    text = f"{SITE}registry: registry.example/team\n"
    launch = launch_shipped("h100-nccl", "trainjob", text, tmp_path, ["train.py"])
    assert 'image: "registry.example/team/h100-nccl:h100-ib-h100-nccl-20' in launch.written.text


def test_an_image_without_a_lock_misses_the_lock_and_no_registry(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="it has no current lock") as caught:
        launch_shipped("h100-ucc", "trainjob", f"{SITE}registry: registry.example/team\n", tmp_path, ["train.py"])
    assert caught.value.hint == "envbuild lock h100-ucc; envbuild make h100-ucc; envbuild publish h100-ucc"
    with pytest.raises(SpecError, match="the site names no registry") as caught:
        launch_shipped("h100-ucc", "trainjob", SITE, tmp_path, ["train.py"])
    assert "registry: REGISTRY/TEAM" in caught.value.hint


def test_an_image_that_is_not_built_is_printed_with_the_commands_that_precede(tmp_path: Path) -> None:
    text = f"{SITE}registry: registry.example/team\n"
    for name, commands in {
        "h100-nccl": "envbuild make h100-nccl; envbuild publish h100-nccl",
        "h100-ucc": "envbuild lock h100-ucc; envbuild make h100-ucc",
    }.items():
        launch = launch_shipped(name, "docker", text, tmp_path, ["train.py"])
        assert any(line.endswith(f"it is started after: {commands}") for line in launch.plan.warnings)
    assert (
        "# an image of this node's Docker Engine, after: envbuild export h100-ucc --to docker\n" in launch.written.text
    )


def test_a_tag_that_nothing_was_compared_with_is_not_named_where_signatures_are_required(tmp_path: Path) -> None:
    text = f"{SITE}registry: registry.example/team\nsignatures: {{keys: [team.pub]}}\n"
    with pytest.raises(SpecError, match="none is known for h100-nccl") as caught:
        launch_shipped("h100-nccl", "trainjob", text, tmp_path, ["train.py"])
    assert "name docker://REGISTRY/…:TAG" in caught.value.hint


def test_the_driver_of_the_site_replaces_the_floor_of_the_target(tmp_path: Path) -> None:
    """CUDA 13 needs a driver of branch 580: the target promises one, and the hosts of this site have an older one."""
    with pytest.raises(ConflictError) as caught:
        launch_shipped("h100-nccl", "srun", f'{SITE}driver: "550.54.15"\n', tmp_path, ["hostname"])
    assert "550.54.15" in str(caught.value)
    assert "the driver that site.yaml states for these nodes" in str(caught.value)
    newer = f'{SITE}driver: "550.54.15"\ntargets: {{h100-ib: {{driver: "595.45.04"}}}}\n'
    launch = launch_shipped("h100-nccl", "srun", newer, tmp_path, ["hostname"])
    assert launch.plan.target.driver == "595.45.04"


def test_the_target_of_an_image_of_the_project_is_that_of_its_spec(at: Workspace) -> None:
    with pytest.raises(SpecError, match="h100-nccl is built for target 'h100-ib'"):
        find_image("h100-nccl", at, "a100-ib")


def test_a_layout_is_not_an_image_that_nodes_pull(at: Workspace, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    env = ["PATH=/usr/bin", "NCCL_VERSION=2.28"]
    layout.add(foreign_images.image(layout, [tar(file("a", b"1"))], config={"Env": env}), "x")
    image = find_image(f"oci:{layout.path}:x", at, "h100-ib")
    assert (image.arch, image.env["NCCL_VERSION"]) == ("amd64", "2.28")
    with pytest.raises(SpecError, match="is not an image that nodes can pull"):
        launch_image(f"oci:{layout.path}:x", "srun", Request(("hostname",), target="h100-ib"), at)
