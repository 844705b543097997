"""AWS EFA: which installers are known, and how one is unpacked without being run."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from envbuild.build.steps import INPUTS
from envbuild.core.errors import SpecError
from envbuild.spec.recipe import Archive
from tests.support.recipes import image, moved, recipe, steps
from tests.support.tools import require_tools

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("options", "target", "why"),
    [
        ({"version": "1.99.0"}, "p5-efa", "the sha256 of EFA installer 1.99.0 is not known"),
        ({"version": "1.37.0", "plugin": True}, "p5-efa", "take 1.38 or newer"),
        ({"version": "1.39.0", "plugin": True}, "gb200-nvl", "take 1.40 or newer"),
    ],
)
def test_images_that_efa_refuses(options: dict[str, Any], target: str, why: str) -> None:
    made = recipe("efa", **options)
    (reason,) = map(str, made.refusals(image(made, target=target, base="ubuntu:24.04")))
    assert why in reason


def test_efa_by_a_sha256_of_the_spec() -> None:
    made = recipe("efa", version="1.99.0", sha256="f" * 64)
    (archive,) = made.sources(image(made, base="ubuntu:24.04")).archives
    assert made.refusals(image(made, base="ubuntu:24.04")) == ()
    file = "aws-efa-installer-1.99.0.tar.gz"
    assert archive == Archive("efa", f"vendor:aws-efa/{file}", file, "f" * 64)
    with pytest.raises(SpecError, match="64 hex digits"):
        recipe("efa", version="1.99.0", sha256="f")


def deb(folder: Path, name: str, contents: dict[str, str], links: dict[str, str]) -> None:
    tree = folder / f"tree-{name}"
    for path, text in {"DEBIAN/control": control(name), **contents}.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).parent.chmod(0o755)  # dpkg-deb wants its folder to be open
        (tree / path).write_text(text)
        (tree / path).chmod(0o755)
    for path, target in links.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).symlink_to(target)
    file = folder / f"{name}_1_amd64.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, file], check=True, capture_output=True)
    shutil.rmtree(tree)


def control(name: str) -> str:
    return f"Package: {name}\nVersion: 1\nArchitecture: amd64\nMaintainer: nobody <n@example.org>\nDescription: x\n"


@pytest.mark.parametrize("complete", [True, False])
def test_efa_is_unpacked_without_its_installer(complete: bool, tmp_path: Path) -> None:
    require_tools("dpkg-deb")
    made = recipe("efa", version="1.47.0", plugin=True)
    env = image(made, base="ubuntu:24.04", target="p5-efa")
    lib = "usr/lib/x86_64-linux-gnu"
    packages = tmp_path / "aws-efa-installer/DEBS/UBUNTU2404/x86_64"
    (packages / "rdma-core").mkdir(parents=True)
    deb(packages, "libfabric1-aws", {"opt/amazon/efa/lib/libfabric.so.1": "x"}, {})
    deb(packages, "libfabric-aws-bin", {"opt/amazon/efa/bin/fi_info": "#!/bin/sh\n"}, {})
    deb(packages, "libfabric-aws-dev", {"opt/amazon/efa/lib/libfabric.a": "x"}, {})
    deb(packages, "libnccl-ofi", {"opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net-ofi.so": "x"}, {})
    deb(packages / "rdma-core", "libibverbs1", {f"{lib}/libibverbs.so.1": "x", f"{lib}/libefa.so.1": "x"}, {})
    provider = {f"{lib}/libibverbs/libefa-rdmav64.so": "../libefa.so.1"}
    deb(packages / "rdma-core", "ibverbs-providers", {"etc/libibverbs.d/efa.driver": "driver efa\n"}, provider)
    deb(packages / "rdma-core", "ibverbs-utils", {"usr/bin/ibv_devinfo": "#!/bin/sh\n"}, {})
    if complete:
        deb(packages / "rdma-core", "librdmacm1", {f"{lib}/librdmacm.so.1": "x"}, {})
    archives = tmp_path / INPUTS.lstrip("/") / "archives"
    archives.mkdir(parents=True)
    with tarfile.open(archives / "aws-efa-installer-1.47.0.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "aws-efa-installer", "aws-efa-installer")
    done = [
        subprocess.run(["/bin/sh", "-ec", moved(command, tmp_path, made.prefix)], capture_output=True, text=True)
        for command in steps(made, env)
    ]
    if not complete:
        assert done[-1].returncode == 1 and "there is no package rdma-core/librdmacm1" in done[-1].stdout
        return
    assert [item.returncode for item in done] == [0, 0], done[-1].stderr
    root = tmp_path / "opt/amazon"
    assert (root / "efa/lib/libibverbs/libefa-rdmav64.so").read_text() == "x"
    assert (root / "efa/bin/ibv_devinfo").exists() and (root / "efa/lib/librdmacm.so.1").exists()
    assert (root / "ofi-nccl/lib/libnccl-net-ofi.so").exists()
    assert not (root / "efa/lib/libfabric.a").exists()
    installed = (root / "efa_installed_packages").read_text()
    assert installed.startswith("# EFA installer version: 1.47.0\nlibfabric1-aws\t1\n")
    (line,) = made.runtime(env).files.values()
    assert Path(f"{tmp_path}{line.split()[1]}-rdmav64.so").exists()
