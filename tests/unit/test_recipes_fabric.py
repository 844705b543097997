"""Fabric and tools: what their recipes ask for, refuse and do."""

from __future__ import annotations

import ctypes.util
import dataclasses
import hashlib
import io
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from recipekit import ROOT, image, recipe, steps

from envbuild.errors import SpecError
from envbuild.fields import Reader
from envbuild.plan.units import INPUTS
from envbuild.recipe import Archive, Recipe, RecipeEnv
from envbuild.recipefile import load_recipe, read_options
from envbuild.yamlfile import parse

pytestmark = pytest.mark.unit

KEY = "0123456789abcdef0123456789ABCDEF01234567"
# Each recipe with options, layers beside it and a base that it can stand in, in every way in which it does something.
SAMPLES: tuple[tuple[str, dict[str, Any], tuple[str, ...], str], ...] = (
    ("rdma-core", {}, (), "debian:13"),
    ("rdma-core", {"version": "62.1"}, (), "ubuntu:22.04"),
    ("ofed", {"version": "3.2.1", "key": KEY}, (), "ubuntu:22.04"),
    ("ofed", {"version": "23.07-0.5.1.2", "provider": "mlnx-ofed", "key": KEY}, (), "ubuntu:20.04"),
    ("hpcx", {"version": "2.25.1"}, ("rdma-core", "cuda"), "ubuntu:24.04"),
    ("hpcx", {"version": "2.18.0", "plugin": False}, ("rdma-core",), "ubuntu:22.04"),
    ("pmix", {}, (), "debian:12"),
    ("pmix", {"version": "4.2"}, (), "debian:13"),
    ("libfabric", {}, (), "debian:13"),
    ("libfabric", {"version": "2.4.0"}, ("cuda",), "debian:13"),
    ("efa", {"version": "1.47.0", "plugin": True, "mpi": "4"}, (), "ubuntu:24.04"),
    ("aws-ofi-nccl", {"version": "1.21.1"}, ("libfabric", "cuda"), "debian:13"),
    ("nccl-rdma-sharp", {}, ("rdma-core", "cuda"), "debian:13"),
    ("nccl-rdma-sharp", {"version": "2.4"}, ("rdma-core", "cuda"), "debian:13"),
    ("nvshmem", {"version": "3.7"}, ("torch",), "debian:13"),
    ("perftest", {}, (), "debian:13"),
    ("perftest", {"provider": "source"}, ("rdma-core", "cuda"), "debian:13"),
    ("osu-micro-benchmarks", {}, ("openmpi",), "debian:13"),
    ("osu-micro-benchmarks", {"version": "5.3"}, ("openmpi",), "debian:13"),
    ("osu-micro-benchmarks", {"version": "7.5.2", "cuda": True}, ("openmpi", "cuda"), "debian:13"),
    ("msccl", {"algorithms": "ndv5"}, ("cuda",), "ubuntu:22.04"),
    ("nsight-systems", {"version": "2025.3.2"}, (), "ubuntu:24.04"),
    ("pdsh", {}, (), "debian:13"),
    ("files", {"known": ["azure-ndv4-topo", "hostfile"], "text": {"/etc/motd.d/x": "it's\\nhere"}}, (), "debian:13"),
)
IDS = [f"{name}-{number}" for number, (name, *_) in enumerate(SAMPLES)]


def sample(name: str, options: dict[str, Any], layers: tuple[str, ...], base: str) -> tuple[Recipe, RecipeEnv]:
    old = {"provider": "apt", "version": "12.6"}
    needed = {"cuda": old if name == "msccl" else {"version": "13.2"}, "libfabric": {"version": "2.4.0"}}
    made = recipe(name, **options)
    return made, image(made, *(recipe(layer, **needed.get(layer, {})) for layer in layers), base=base)


# --- of all


@pytest.mark.parametrize(("name", "options", "layers", "base"), SAMPLES, ids=IDS)
def test_it_can_stand_there_and_every_source_is_pinned(
    name: str, options: dict[str, Any], layers: tuple[str, ...], base: str
) -> None:
    made, env = sample(name, options, layers, base)
    assert made.refusals(env) == ()
    sources = made.sources(env)
    assert all(re.fullmatch("[0-9a-f]{40}", git.commit) for git in sources.git)
    assert all(re.fullmatch("[0-9a-f]{64}", archive.sha256) for archive in sources.archives)
    assert all(re.fullmatch("[0-9A-F]{40}", repository.key) for repository in sources.repositories)
    assert made.builds == bool(made.build(env))


@pytest.mark.parametrize(("name", "options", "layers", "base"), SAMPLES, ids=IDS)
def test_what_it_runs_is_shell_and_python(
    name: str, options: dict[str, Any], layers: tuple[str, ...], base: str, tmp_path: Path
) -> None:
    made, env = sample(name, options, layers, base)
    script = tmp_path / "script"
    for command in [*steps(made, env), *(check.command for check in made.verify(env))]:
        script.write_text(command)
        done = subprocess.run(["/bin/sh", "-n", script], capture_output=True, text=True)
        assert not done.stderr, f"{command}\n{done.stderr}"
        for program in re.findall(r'python3 -c "([^"]*)"', command):
            compile(program, command, "exec")
    for check in made.verify(env):
        re.compile(check.expect)


def test_one_verbs_one_network_plugin_one_mpi() -> None:
    """What may not stand twice in an image is claimed by each that brings it."""

    def brings(library: str) -> set[str]:
        return {name for name, *rest in SAMPLES if library in sample(name, *rest)[0].provides(sample(name, *rest)[1])}

    assert brings("libibverbs") == {"rdma-core", "ofed", "efa"}
    assert brings("libnccl-net") == {"hpcx", "efa", "aws-ofi-nccl", "nccl-rdma-sharp"}
    assert brings("libmpi") == {"hpcx", "efa"}
    assert brings("libfabric") == {"libfabric", "efa"}
    assert "libnccl-net" not in recipe("hpcx", plugin=False).provides(image())
    assert "libnccl-net" not in recipe("efa").provides(image())


@pytest.mark.parametrize(
    ("name", "component", "base", "newest"),
    [
        ("efa", "efa-installer", "debian:13", "<=1.47.0"),
        ("aws-ofi-nccl", "aws-ofi-nccl", "debian:13", "<=1.21.1"),
        ("hpcx", "hpcx", "ubuntu:24.04", "<=2.25.1"),
        ("hpcx", "hpcx", "ubuntu:20.04", "<=2.21.2"),  # the last with an archive for it
        ("hpcx", "hpcx", "debian:13", "*"),  # none: the recipe refuses, not the matrix
    ],
)
def test_what_is_not_asked_for_is_one_that_can_be_had(name: str, component: str, base: str, newest: str) -> None:
    assert recipe(name).matrix(image(base=base)) == {component: newest}
    assert recipe(name, version="1.40.0").matrix(image(base=base)) == {component: "1.40.0"}


# --- rdma-core, OFED


@pytest.mark.parametrize(
    ("base", "name"),
    [
        ("debian:12", "librdmacm1"),
        ("ubuntu:22.04", "librdmacm1"),
        ("debian:13", "librdmacm1t64"),
        ("ubuntu:24.04", "librdmacm1t64"),
    ],
)
def test_packages_as_the_distribution_names_them(base: str, name: str) -> None:
    assert name in recipe("rdma-core").runtime(image(base=base)).debian
    assert name in recipe("perftest", provider="source").runtime(image(base=base)).debian


def test_an_own_rdma_core_is_the_only_one() -> None:
    own = recipe("rdma-core", version="62.1")
    compiled = recipe("perftest", provider="source")
    env = image(own, compiled)
    assert own.refusals(env) == ()
    assert "libibverbs1" not in compiled.runtime(env).debian
    assert "--enable-efa=/opt/rdma-core" in "".join(steps(recipe("libfabric", version="2.4.0"), env))


def test_a_version_of_rdma_core_that_nobody_knows() -> None:
    asked = recipe("rdma-core", version="99.9")
    assert "no commit is known of rdma-core 99.9" in asked.refusals(image(asked))[0]
    given = recipe("rdma-core", version="99.9", commit="a" * 40)
    assert given.refusals(image(given)) == ()
    assert given.sources(image(given)).git[0].tag == ""
    with pytest.raises(SpecError, match="one version of rdma-core"):
        recipe("rdma-core", version="62.1", provider="debian")


@pytest.mark.parametrize(
    ("options", "target", "origin"),
    [
        ({"version": "3.2.1"}, "h100-ib", "apt:nvidia-doca/3.2.1/ubuntu22.04/x86_64"),
        ({"version": "3.2.1"}, "gb200-nvl", "apt:nvidia-doca/3.2.1/ubuntu22.04/arm64-sbsa"),
        (
            {"version": "23.07-0.5.1.2", "provider": "mlnx-ofed"},
            "h100-ib",
            "apt:nvidia-mlnx-ofed/23.07-0.5.1.2/ubuntu22.04/x86_64",
        ),
    ],
)
def test_where_ofed_comes_from(options: dict[str, Any], target: str, origin: str) -> None:
    made = recipe("ofed", key=KEY, **options)
    (repository,) = made.sources(image(made, target=target, base="ubuntu:22.04")).repositories
    assert (repository.origin, repository.suite, repository.components) == (origin, "./", ())
    assert repository.key == KEY.upper()


def test_what_ofed_refuses() -> None:
    keyless = recipe("ofed", version="3.2.1")
    (reason,) = keyless.refusals(image(keyless, base="ubuntu:22.04"))
    assert "key: FINGERPRINT" in reason
    for made in (keyless, recipe("ofed"), recipe("ofed", key=KEY), recipe("ofed", key=KEY, version="3.2.1")):
        (reason,) = made.refusals(image(made, base="debian:13"))  # and nobody looks for a key in vain
        assert "for debian:13 is known" in reason and reason.endswith("take layer rdma-core")
    wrong = {"version": "3.2.1", "provider": "mlnx-ofed"}, {"version": "3.2.1", "key": "abc"}
    for options in ({"version": "3.2"}, *wrong):
        with pytest.raises(SpecError):
            recipe("ofed", **options)


@pytest.mark.parametrize("provider", ["doca", "mlnx-ofed"])
def test_a_key_of_ofed_is_that_of_one_version(provider: str) -> None:
    """Without a version the repository's name would have an empty part."""
    made = recipe("ofed", provider=provider, key=KEY)
    (reason,) = made.refusals(image(made, base="ubuntu:22.04"))
    assert reason.startswith("a key signs the repository of one version, and none is asked for; ")
    assert f"; write version: {'3.2.1' if provider == 'doca' else '23.07-0.5.1.2'} beside it" in reason
    assert made.matrix(image(made)) == {}  # nor does the matrix pick one


def test_ofed_says_its_version_as_what_it_is() -> None:
    assert recipe("ofed", version="3.2.1").matrix(image()) == {"doca": "3.2.1"}
    mlnx = recipe("ofed", version="23.07-0.5.1.2", provider="mlnx-ofed")
    assert mlnx.matrix(image()) == {"ofed": "23.07-0.5.1.2"}


# --- HPC-X


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
            "2.18 is known for ubuntu:22.04, aarch64, CUDA any; give its",
        ),
        ({}, "debian:13", "gb200-nvl", "sha256:, take ubuntu:24.04 with CUDA 13, or leave it out"),
        ({"version": "2.16", "cuda": "13"}, "ubuntu:22.04", "h100-ib", "CUDA 13"),
        ({"version": "2.99"}, "ubuntu:22.04", "h100-ib", "take one of 2.25.1, 2.24.1, 2.21.2, 2.20, 2.19, 2.18, 2.16"),
        (
            {"version": "2.16"},
            "ubuntu:24.04",
            "gb200-nvl",
            "give its file: and sha256:, take one of 2.25.1, 2.24.1, or leave",
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
    assert len(reasons) == 1 and why in reasons[0]
    assert "2.23" not in reasons[0]  # which is for another distribution or CPU than all of these


def test_hpcx_needs_verbs_and_whole_archives() -> None:
    made = recipe("hpcx", version="2.18")
    (reason,) = made.refusals(image(made, base="ubuntu:22.04"))
    assert reason.endswith("add under layers: rdma-core or ofed")
    for options in ({"file": "hpcx-v2.26-gcc-inbox-ubuntu24.04-cuda13-x86_64"}, {"sha256": "0" * 64}):
        with pytest.raises(SpecError, match="go together"):
            recipe("hpcx", **options)
    with pytest.raises(SpecError, match="is not the name of an archive"):
        recipe("hpcx", file="hpcx.tbz", sha256="0" * 64)


def moved(command: str, tmp_path: Path, prefix: str) -> str:
    """The command with its fixed folders below `tmp_path`."""
    return re.sub(rf"(?<!tree){prefix}", f"{tmp_path}{prefix}", command.replace(INPUTS, f"{tmp_path}{INPUTS}"))


def pack(tmp_path: Path, file: str, contents: dict[str, str], mode: str) -> None:
    folder = tmp_path / INPUTS.lstrip("/") / "archives"
    folder.mkdir(parents=True)
    with tarfile.open(folder / file, mode) as tar:
        for name, text in contents.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o755
            tar.addfile(info, io.BytesIO(text.encode()))


@pytest.mark.parametrize("plugin", [True, False])
def test_hpcx_is_told_where_it_is(plugin: bool, tmp_path: Path) -> None:
    if not shutil.which("bzip2"):
        pytest.skip("no bzip2 here")
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


# --- PMIx, libfabric


@pytest.mark.parametrize(
    ("version", "commit", "submodules"),
    [("5.0", "3795947f", ("*",)), ("4.2", "eebd966a", ("*",)), ("4.2.2", "29bacec6", ()), ("3.1.6", "ae99c6de", ())],
)
def test_the_commit_of_a_pmix(version: str, commit: str, submodules: tuple[str, ...]) -> None:
    (git,) = recipe("pmix", version=version).sources(image()).git
    assert git.commit.startswith(commit) and git.submodules == submodules


def test_the_libfabric_of_a_distribution_knows_no_gpu() -> None:
    made, cuda = recipe("libfabric"), recipe("cuda", version="13.2")
    (reason,) = made.refusals(image(made, cuda))
    assert "knows no CUDA memory" in reason
    assert recipe("libfabric", provider="debian").refusals(image(made, cuda)) == ()
    text = "".join(steps(recipe("libfabric", version="2.4"), image(made, cuda)))
    assert "--enable-cuda-dlopen" in text and "--with-cuda=/opt/cuda" in text and "--disable-psm3" in text


# --- EFA and its plugin


@pytest.mark.parametrize(
    ("options", "target", "why"),
    [
        ({"version": "1.99.0"}, "p5-efa", "no sha256 is known of EFA installer 1.99.0"),
        ({"version": "1.37.0", "plugin": True}, "p5-efa", "take 1.38 or newer"),
        ({"version": "1.39.0", "plugin": True}, "gb200-nvl", "take 1.40 or newer"),
    ],
)
def test_what_efa_refuses(options: dict[str, Any], target: str, why: str) -> None:
    made = recipe("efa", **options)
    (reason,) = made.refusals(image(made, target=target, base="ubuntu:24.04"))
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
    if not shutil.which("dpkg-deb"):
        pytest.skip("no dpkg-deb here")
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


def test_the_plugin_stands_on_a_libfabric() -> None:
    made, cuda = recipe("aws-ofi-nccl", version="1.21.1"), recipe("cuda", version="13.2")
    (reason,) = made.refusals(image(made, cuda))
    assert "libfabric, or efa" in reason
    efa = image(made, cuda, recipe("efa", version="1.47.0"), target="p5-efa")
    assert "--with-libfabric=/opt/amazon/efa" in "".join(steps(made, efa))
    assert "--enable-platform-aws" in "".join(steps(made, efa))
    other = image(made, cuda, recipe("libfabric", provider="debian"))
    assert "--with-libfabric" not in "".join(steps(made, other))
    assert "--disable-platform-aws" in "".join(steps(made, other))
    assert "libfabric-dev" in made.sources(other).debian and "libfabric-dev" not in made.sources(efa).debian


@pytest.mark.parametrize(
    ("version", "tag", "has"),
    [("1.21.1", "v1.21.1", "--enable-ngc"), ("1.13.2", "v1.13.2-aws", "ln -s libnccl-net.so lib/libnccl-net-aws-ofi")],
)
def test_the_name_that_nvidias_images_look_for(version: str, tag: str, has: str) -> None:
    made = recipe("aws-ofi-nccl", version=version)
    assert made.sources(image(made)).git[0].tag == tag
    fabric = recipe("libfabric", version="2.4.0")
    assert has in "".join(steps(made, image(made, fabric, base="nvcr.io/nvidia/pytorch:25.10-py3")))
    assert has not in "".join(steps(made, image(made, fabric)))


# --- NCCL's others, NVSHMEM


def test_sharp_comes_with_hpcx_alone() -> None:
    made = recipe("nccl-rdma-sharp")
    assert "--without-sharp" in "".join(steps(made, image(made)))
    text = "".join(steps(made, image(made, recipe("hpcx", version="2.18", plugin=False))))
    assert "--with-sharp=/opt/hpcx/sharp" in text and "--with-ucx=/opt/hpcx/ucx" in text


def test_msccl_and_a_cuda_that_is_too_new() -> None:
    made = recipe("msccl")
    (reason,) = made.refusals(image(made, recipe("cuda", version="13.2")))
    assert "do not compile with CUDA 13 " in reason and reason.endswith("take CUDA 12")


def test_a_torch_wheel_never_loads_msccl() -> None:
    made, cuda = recipe("msccl"), recipe("cuda", provider="apt", version="12.6")
    (reason,) = made.refusals(image(made, cuda, recipe("torch", version="2.6"), base="ubuntu:22.04"))
    assert "the torch wheel loads the NCCL of its own package" in reason
    base = "nvcr.io/nvidia/pytorch:25.10-py3"
    assert made.refusals(image(made, cuda, recipe("torch", provider="base"), base=base)) == ()
    assert made.provides(image()) == recipe("nccl").provides(image())


def test_msccl_is_compiled_for_the_target_and_says_so() -> None:
    made = recipe("msccl", algorithms="ndv4")
    env = image(made, recipe("cuda", provider="apt", version="12.6"), target="a100-ib", base="ubuntu:22.04")
    text = "\n".join(steps(made, env))
    assert "compute_80,code=sm_80" in text and "msccl-algorithms/ndv4/*.xml" in text
    assert "nccl 22304" in made.verify(env)[0].expect
    assert [git.name for git in recipe("msccl").sources(env).git] == ["msccl"]


def test_nvshmem_is_for_the_cuda_of_the_image() -> None:
    made = recipe("nvshmem", version="3.7")
    assert made.runtime(image()).toolkit == ("nvidia-nvshmem-cu13==3.7.*",)
    (reason,) = made.refusals(image(made, recipe("cuda", provider="apt", version="12.6")))
    assert "write cuda: '12'" in reason
    assert recipe("nvshmem", cuda="12").runtime(image()).toolkit == ("nvidia-nvshmem-cu12",)


# --- tools


@pytest.mark.parametrize(("cpu", "avx2", "sse42"), [("x86-64", 0, 0), ("x86-64-v2", 0, 1), ("x86-64-v3", 1, 0)])
def test_perftest_is_for_the_cpu_of_the_target(cpu: str, avx2: int, sse42: int, tmp_path: Path) -> None:
    made = recipe("perftest", version="26.04.17")
    env = image(made)
    env = dataclasses.replace(env, target=dataclasses.replace(env.target, cpu=cpu))
    source = tmp_path / "configure.ac"
    source.write_text('__builtin_cpu_supports("avx2") ? 0 : 1; __builtin_cpu_supports ("sse4.2")\n')
    text = "".join(steps(made, env))
    (line,) = re.findall(r"sed -i -e '[^']*' -e '[^']*' configure.ac", text)
    subprocess.run(["/bin/sh", "-c", line], cwd=tmp_path, check=True)
    assert source.read_text() == f"{avx2} ? 0 : 1; {sse42}\n"
    assert ("-include xmmintrin.h" in text) == (cpu == "x86-64")


def test_perftest_with_gpu_memory() -> None:
    cuda, plain = recipe("cuda", version="13.2"), recipe("perftest")
    assert "host memory only" in plain.refusals(image(plain, cuda))[0]
    made = recipe("perftest", version="4.5-0.12")
    text = "".join(steps(made, image(made, cuda)))
    assert "CUDA_H_PATH" in text and "code=sm_90" in text
    assert made.sources(image(made, cuda)).git[0].tag == "v4.5-0.12"
    assert made.verify(image(made, cuda))[0].expect == "Version: 6.03"


@pytest.mark.parametrize(
    ("options", "layers", "why"),
    [
        ({}, (), "add under layers: openmpi or hpcx"),
        ({"version": "8.0"}, ("openmpi",), "write its sha256 beside it"),
        ({"cuda": True}, ("openmpi",), "add the layer cuda"),
        ({"version": "7.4", "cuda": True}, ("openmpi", "cuda"), "7.4 does not compile with CUDA 13.2"),
    ],
)
def test_what_osu_refuses(options: dict[str, Any], layers: tuple[str, ...], why: str) -> None:
    made, env = sample("osu-micro-benchmarks", options, layers, "debian:13")
    (reason,) = made.refusals(env)
    assert why in reason


def test_osu_by_an_mpi_of_its_own() -> None:
    made = recipe("osu-micro-benchmarks", version="8.0", sha256="a" * 64)
    env = image(made, recipe("openmpi", provider="source", version="5.0.8"))
    assert made.refusals(env) == ()
    assert 'CC="/opt/openmpi/bin/mpicc"' in "".join(steps(made, env))
    assert made.verify(env)[0].command.startswith("/opt/openmpi/bin/mpirun ")


def test_nsight_systems_where_its_archive_has_it() -> None:
    made = recipe("nsight-systems", version="2025.3.2")
    (repository,) = made.sources(image(made, base="ubuntu:22.04")).repositories
    assert repository.origin == "apt:nvidia-devtools/ubuntu2204/amd64"
    assert made.runtime(image(made)).debian == ("nsight-systems-cli-2025.3.2",)
    assert "has no folder for debian:13" in made.refusals(image(made))[0]
    other = recipe("nsight-systems", key=KEY)
    assert other.sources(image(other, base="ubuntu:22.04")).repositories[0].key == KEY.upper()


def test_pdsh_brings_no_server() -> None:
    made = recipe("pdsh")
    runtime = made.runtime(image())
    assert runtime.debian == ("openssh-client", "pdsh") and runtime.env == {"PDSH_RCMD_TYPE": "ssh"}


# --- files

# Azure/azhpc-images@8e9d055 topology/: GPUs and network adapters (PCI domains) of each NUMA node, and its CPUs
TOPOLOGY = {
    "azure-ndv4-topo": [
        (0, 23, {"0003", "0004"}, {"0103", "0104"}),
        (24, 47, {"0001", "0002"}, {"0101", "0102"}),
        (48, 71, {"000d", "000e"}, {"0107", "0108"}),
        (72, 95, {"000b", "000c"}, {"0105", "0106"}),
    ],
    "azure-ndv5-topo": [
        (0, 47, {"0001", "0002", "0003", "0008"}, {"0101", "0102", "0103", "0104"}),
        (48, 95, {"0009", "000a", "000b", "000c"}, {"0105", "0106", "0107", "0108"}),
    ],
}


@pytest.mark.parametrize("name", TOPOLOGY)
def test_a_topology_is_that_of_the_machine(name: str) -> None:
    made = recipe("files", known=[name])
    ((path, text),) = made.runtime(image(made)).files.items()
    assert path == f"/opt/microsoft/{name.removeprefix('azure-')}.xml"
    found, masks = [], []
    for node in ElementTree.fromstring(text):
        masks.append(int(node.attrib["affinity"].replace(",", ""), 16))
        cpus = [number for number in range(96) if masks[-1] >> number & 1]
        kinds: dict[str, set[str]] = {"0x030200": set(), "0x020700": set()}
        for device in node.iter("pci"):
            if device.attrib["class"] in kinds:
                kinds[device.attrib["class"]].add(device.attrib["busid"].removesuffix(":00:00.0"))
        assert cpus == list(range(cpus[0], cpus[-1] + 1))
        found.append((cpus[0], cpus[-1], *kinds.values()))
    assert found == TOPOLOGY[name]
    assert sum(masks) == (1 << 96) - 1  # every CPU once
    assert all(re.fullmatch("([0-9a-f]{8},){2}[0-9a-f]{8}", mask) for mask in re.findall('affinity="([^"]*)"', text))
    addresses = re.findall('busid="([^"]*)"', text)
    assert len(addresses) == len(set(addresses))


def test_on_ndv5_each_gpu_has_its_own_switch() -> None:
    text = next(iter(recipe("files", known=["azure-ndv5-topo"]).runtime(image()).files.values()))
    switches = [switch for node in ElementTree.fromstring(text) for switch in node]
    assert len(switches) == 8
    assert all([device.attrib["class"] for device in switch] == ["0x030200", "0x020700"] for switch in switches)


def test_settings_of_nccl_are_put_together() -> None:
    made = recipe("files", known=["azure-ndv4-nccl"], nccl={"NCCL_IB_HCA": "mlx5_ib", "NCCL_IGNORE_CPU_AFFINITY": "0"})
    assert made.runtime(image(made)).files == {
        "/etc/nccl.conf": (
            "NCCL_IB_HCA=mlx5_ib\nNCCL_IB_PCI_RELAXED_ORDERING=1\nNCCL_IGNORE_CPU_AFFINITY=0\n"
            "NCCL_TOPO_FILE=/opt/microsoft/ndv4-topo.xml\n"
        )
    }


def test_a_host_file_has_the_gpus_of_the_target() -> None:
    made = recipe("files", known=["hostfile"])
    env = image(made, target="lambda-a6000")
    assert made.runtime(env).files == {"/job/hostfile": f"localhost slots={env.target.gpus}\n"}
    assert "has none" in made.refusals(image(made, target="cpu"))[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"known": ["azure-ndv6-topo"]},
            "is no known file\nhint: did you mean 'azure-ndv5-topo'? there are: azure-ndv4-",
        ),
        ({"text": {"etc/x": "1"}}, "is not a plain absolute path"),
        ({"text": {"/etc/../bin/sh": "1"}}, "is not a plain absolute path"),
        ({"text": {"/opt/a b": "1"}}, "is not a plain absolute path"),
        ({"text": {"/usr/bin/env": "1"}}, "belongs to the system (/usr)"),
        ({"text": {"/etc/passwd": "1"}}, "belongs to the system (/etc/passwd)"),
        ({"text": {"/opt/venv/x": "1"}}, "belongs to the Python packages of the image (/opt/venv)"),
        ({"text": {"/opt": "1"}}, "'/opt' is a folder of the system"),
        ({"text": {"/etc": "1"}}, "'/etc' is a folder of the system"),
        ({"text": {"/var": "1"}}, "'/var' is a folder of the system"),
        ({"text": {"/etc/nccl.conf": "A=1"}, "known": ["azure-ndv4-nccl"]}, "write its settings there"),
        ({"nccl": {"nccl_debug": "INFO"}}, "is not the name of a setting"),
        ({"nccl": {"NCCL_DEBUG": "INFO\nX=1"}}, "holds a line end"),
    ],
)
def test_files_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        recipe("files", **options)


def test_files_of_what_a_layer_builds_are_that_layers() -> None:
    paths = ("/opt/ucx/etc/ucx.conf", "/opt/ucx", "/opt/ucx-notes", "/opt/ucc/x", "/etc/ucx/ucx.conf")
    made = recipe("files", text=dict.fromkeys(paths, "1"))
    compiled = recipe("ucx", version="1.20")
    reasons = made.refusals(image(made, compiled, recipe("gdrcopy")))
    assert {reason.partition(" belongs to ")[0] for reason in reasons} == {"/opt/ucx/etc/ucx.conf", "/opt/ucx"}
    assert all("layer 'ucx', which makes /opt/ucx; put it into another folder" in reason for reason in reasons)
    assert made.refusals(image(made, recipe("ucx"))) == ()  # the distribution's makes no folder there


@pytest.mark.parametrize("text", ["echo ${HOME} $(id) `id` $PATH", "'${A}'"])
def test_contents_of_files_are_literal(text: str) -> None:
    """Neither a shell nor enroot reads them on the way; what may become a word of a command is another matter."""
    made = recipe("files", text={"/opt/site/run.sh": text})
    assert made.runtime(image(made)).files == {"/opt/site/run.sh": f"{text}\n"}
    with pytest.raises(SpecError, match=r"holds .*which a shell would expand"):
        recipe("debian-packages", packages=[text])


def test_files_are_looked_at_as_they_are_written(tmp_path: Path) -> None:
    made = recipe("files", text={"/etc/motd": "it's\\nhere"}, known=["azure-ndv4-topo"])
    env = image(made)
    for path, text in made.runtime(env).files.items():
        file = tmp_path / hashlib.sha256(path.encode()).hexdigest()
        file.write_text(text)
        (check,) = (check for check in made.verify(env) if path in check.name)
        command = check.command.replace(f"'{path}'", str(file))
        shown = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True).stdout
        assert re.search(check.expect, shown)
        file.write_text(f"{text} ")
        shown = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True).stdout
        assert not re.search(check.expect, shown)


def test_a_short_form_of_files() -> None:
    reader = Reader()
    _, node = parse("files: [azure-ndv4-topo]", "x.yaml", reader.findings).entries["files"]
    made = read_options(reader, load_recipe(ROOT / "recipes" / "files.py"), node)
    reader.finish()
    assert made is not None and dataclasses.asdict(made)["known"] == ("azure-ndv4-topo",)


def test_the_check_of_verbs_runs_here() -> None:
    if not ctypes.util.find_library("ibverbs"):
        pytest.skip("no libibverbs here")
    check = recipe("rdma-core").verify(image())[0]
    shown = subprocess.run(["/bin/sh", "-c", check.command], capture_output=True, text=True).stdout
    assert "verbs True" in shown
