"""HPC-X: which archive fits an image, and how it is moved to its folder."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from envbuild.build.steps import INPUTS
from envbuild.core.errors import SpecError
from tests.support.recipes import KEY, image, moved, recipe, steps
from tests.support.tools import require_tools

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("version", "base", "target", "layers", "origin"),
    [
        (
            "2.16",
            "ubuntu:20.04",
            "h100-ib",
            ("ofed",),
            "v2.16/hpcx-v2.16-gcc-mlnx_ofed-ubuntu20.04-cuda12-gdrcopy2-nccl2.18-x86_64",
        ),
        ("2.18.0", "ubuntu:22.04", "h100-ib", ("ofed",), "v2.18/hpcx-v2.18-gcc-mlnx_ofed-ubuntu22.04-cuda12-x86_64"),
        (
            "2.24.1",
            "ubuntu:22.04",
            "h100-ib",
            ("ofed", "cuda"),
            "v2.24.1_cuda13/hpcx-v2.24.1-gcc-doca_ofed-ubuntu22.04-cuda13-x86_64",
        ),
        (
            "2.25.1",
            "ubuntu:24.04",
            "h100-ib",
            ("ofed", "cuda"),
            "v2.25.1_cuda13/hpcx-v2.25.1-gcc-doca_ofed-ubuntu24.04-cuda13-x86_64",
        ),
        (
            "2.25.1",
            "ubuntu:24.04",
            "h100-ib",
            ("rdma-core", "cuda"),
            "v2.25.1_cuda13/hpcx-v2.25.1-gcc-inbox-ubuntu24.04-cuda13-x86_64",
        ),
        (
            "2.25.1",
            "ubuntu:24.04",
            "gb200-nvl",
            ("ofed", "cuda"),
            "v2.25.1_cuda13/hpcx-v2.25.1-gcc-doca_ofed-ubuntu24.04-cuda13-aarch64",
        ),
    ],
)
def test_which_archive_of_hpcx(version: str, base: str, target: str, layers: tuple[str, ...], origin: str) -> None:
    made = recipe("hpcx", version=version)
    others = {"ofed": {"version": "3.2.1", "key": KEY}, "cuda": {"version": "13.2"}}
    env = image(made, *(recipe(name, **others.get(name, {})) for name in layers), target=target, base=base)
    assert made.refusals(env) == ()
    (archive,) = made.sources(env).archives
    assert archive.origin == f"vendor:hpcx/{origin}.tbz"


@pytest.mark.parametrize(
    ("options", "base", "target", "why"),
    [
        ({"version": "2.18"}, "debian:13", "h100-ib", "no archive of HPC-X 2.18 is known for debian:13"),
        (
            {"version": "2.18"},
            "ubuntu:22.04",
            "gb200-nvl",
            "2.18 is known for ubuntu:22.04, aarch64, CUDA any; write file:",
        ),
        ({}, "debian:13", "gb200-nvl", "take ubuntu:24.04 with CUDA 13, or remove 'hpcx'"),
        ({"version": "2.16", "cuda": "13"}, "ubuntu:22.04", "h100-ib", "CUDA 13"),
        ({"version": "2.99"}, "ubuntu:22.04", "h100-ib", "take one of 2.25.1, 2.24.1, 2.21.2, 2.20, 2.19, 2.18, 2.16"),
        (
            {"version": "2.16"},
            "ubuntu:24.04",
            "gb200-nvl",
            "write file: and sha256: of an archive, take one of 2.25.1, 2.24.1, or remove",
        ),
        (
            {"file": "hpcx-v2.26-gcc-doca_ofed-ubuntu24.04-cuda13-x86_64", "sha256": "0" * 64},
            "ubuntu:22.04",
            "h100-ib",
            "another distribution than ubuntu:22.04",
        ),
    ],
)
def test_archives_of_hpcx_that_do_not_fit(options: dict[str, Any], base: str, target: str, why: str) -> None:
    made = recipe("hpcx", **options)
    reasons = made.refusals(image(made, recipe("rdma-core"), target=target, base=base))
    assert len(reasons) == 1 and why in str(reasons[0])
    assert "2.23" not in str(reasons[0])  # which is for another distribution or CPU than all of these


def test_hpcx_needs_verbs_and_whole_archives() -> None:
    made = recipe("hpcx", version="2.18")
    (reason,) = map(str, made.refusals(image(made, base="ubuntu:22.04")))
    assert reason.endswith("add rdma-core or ofed to the layers")
    for options in ({"file": "hpcx-v2.26-gcc-inbox-ubuntu24.04-cuda13-x86_64"}, {"sha256": "0" * 64}):
        with pytest.raises(SpecError, match="require each other"):
            recipe("hpcx", **options)
    with pytest.raises(SpecError, match="is not the name of an archive"):
        recipe("hpcx", file="hpcx.tbz", sha256="0" * 64)


def pack(tmp_path: Path, file: str, contents: dict[str, str], mode: str) -> None:
    folder = tmp_path / INPUTS.lstrip("/") / "archives"
    folder.mkdir(parents=True)
    with tarfile.open(folder / file, mode) as tar:
        for name, text in contents.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o755
            tar.addfile(info, io.BytesIO(text.encode()))


@pytest.mark.parametrize("plugin", [True, False])
def test_hpcx_is_configured_with_its_prefix(plugin: bool, tmp_path: Path) -> None:
    require_tools("bzip2")
    made = recipe("hpcx", version="2.18", plugin=plugin)
    env = image(made, recipe("rdma-core"), base="ubuntu:22.04")
    top = made.sources(env).archives[0].file.removesuffix(".tbz")
    contents = {
        "ompi/bin/mpirun": "#!/bin/sh\n",
        "ucx/bin/ucx_info": "#!/bin/sh\n",
        "ucc/bin/ucc_info": "#!/bin/sh\n",
        "ucx/lib/pkgconfig/ucx.pc": f"prefix=/build-result/{top}/ucx\n",
        "ucx/lib/libucp.la": "libdir",
        "sources/ucx.tar": "x",
        "ompi/tests/osu": "x",
        "nccl_rdma_sharp_plugin/lib/libnccl-net.so": "x",
    }
    pack(tmp_path, f"{top}.tbz", {f"{top}/{name}": text for name, text in contents.items()}, "w:bz2")
    for command in steps(made, env):
        subprocess.run(["/bin/sh", "-ec", moved(command, tmp_path, made.prefix)], check=True)
    root = tmp_path / "opt/hpcx"
    assert (root / "ucx/lib/pkgconfig/ucx.pc").read_text() == f"prefix={root}/ucx\n"
    assert not (root / "ucx/lib/libucp.la").exists()
    assert not (root / "sources").exists() and not (root / "ompi/tests").exists()
    assert (root / "nccl_rdma_sharp_plugin").exists() == plugin
    runtime = made.runtime(env)
    assert ("/opt/hpcx/nccl_rdma_sharp_plugin/lib" in runtime.libraries) == plugin
    assert runtime.env["OPAL_PREFIX"] == "/opt/hpcx/ompi"
