"""Debian packages beside recipes that bring the same library from elsewhere: refused before anything is fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from recipekit import ROOT, image, recipe

from envbuild.copies import PACKAGES, brought, second_copies
from envbuild.errors import ConflictError
from envbuild.project import Project
from envbuild.resolve import resolve_in
from envbuild.spec import load

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
}


def told(*recipes: Any, base: str = "debian:13") -> list[str]:
    return [finding.message for finding in second_copies(image(*recipes, base=base), {})]


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
    ],
)
def test_a_package_beside_the_layer_that_brings_its_library(layer: str, package: str, library: str) -> None:
    made = recipe(layer, **SOURCE[layer])
    packages = recipe("debian-packages", packages=["git", package])
    because = f"because both bring {library}, and which one a program gets would be chance"
    assert told(made, packages) == [
        f"layer 'debian-packages' installs {package}, which cannot stand beside layer '{layer}', {because}"
    ]


@pytest.mark.parametrize(
    ("layers", "package"),
    [
        ({"ucx": {}}, "libucx0"),  # the same package, asked for twice
        ({"openmpi": {}}, "libopenmpi-dev"),
        ({"libfabric": {"provider": "debian"}}, "libfabric-bin"),
        ({"rdma-core": {}}, "ibverbs-utils"),
        ({"ofed": {"key": "A" * 40, "version": "3.2.1"}}, "libibverbs-dev"),  # under the distribution's names
        ({"ucx": {"version": "1.20"}}, "openmpi-bin"),  # its libucp has the SONAME of the one in /opt, which wins
        ({"nccl": {}}, "libncurses6"),
        ({"openmpi": {"provider": "source", "version": "5.0.10"}}, "git"),
        ({}, "libnccl2"),
    ],
)
def test_what_is_no_second_copy(layers: dict[str, Any], package: str) -> None:
    made = [recipe(name, **options) for name, options in layers.items()]
    assert told(*made, recipe("debian-packages", packages=[package]), base="ubuntu:22.04") == []


def test_packages_of_another_recipe_count_too() -> None:
    """Debian's Open MPI brings Debian's libfabric, its perftest Debian's libibverbs."""
    fabric, core = recipe("libfabric", **SOURCE["libfabric"]), recipe("rdma-core", **SOURCE["rdma-core"])
    (message,) = told(fabric, recipe("openmpi"))
    assert message.startswith("layer 'openmpi' installs openmpi-bin, which cannot stand beside layer 'libfabric'")
    (finding,) = second_copies(image(core, recipe("perftest")), {"perftest": "x.yaml:3:3"})
    assert finding.where == "x.yaml:3:3"
    assert finding.hint == "compile 'perftest' (provider: source), or leave one of the two out"
    assert told(core, recipe("perftest", provider="source")) == []
    for name in ("openmpi", "libfabric", "perftest"):
        others = told(recipe("efa", **SOURCE["efa"]), recipe(name), base="ubuntu:24.04")
        assert len(others) == 1 and "beside layer 'efa'" in others[0]


def test_two_layers_that_provide_one_library_are_not_told_twice() -> None:
    hpcx = recipe("hpcx", version="2.18", plugin=False)
    assert not any("libmpi" in message for message in told(hpcx, recipe("openmpi"), base="ubuntu:22.04"))


def test_every_library_of_the_table_is_some_recipes() -> None:
    provided = {library for name, options in SOURCE.items() for library in recipe(name, **options).provides(image())}
    assert {library for found in PACKAGES.values() for library in found} <= provided
    assert brought("git") == ()


def test_it_is_told_with_its_place_before_anything_is_locked(tmp_path: Path) -> None:
    layers = {"rdma-core": {}, "ucx": "1.20", "debian-packages": ["libucx0", "jq"]}
    (tmp_path / "images").mkdir()
    path = tmp_path / "images" / "x.yaml"
    path.write_text(yaml.safe_dump({"schema": 1, "target": "cpu", "base": "debian:13", "layers": layers}))
    project = Project.find(ROOT)
    with pytest.raises(ConflictError) as caught:
        resolve_in(load(str(path), project), project)
    (finding,) = caught.value.findings
    assert "installs libucx0, which cannot stand beside layer 'ucx'" in finding.message
    assert finding.hint == "remove libucx0: the image has libucp from 'ucx'"
    row = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if "debian-packages" in text)
    assert finding.where.endswith(f"x.yaml:{row}:3")
