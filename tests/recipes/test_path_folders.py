"""Folders that recipes add to PATH: only those with programs."""

from __future__ import annotations

import pytest

from envbuild.build.plan.image_config import image_config
from envbuild.lock.resolve import resolve_in
from envbuild.lock.update import draft_lock
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.project import Project
from tests.support.recipes import ROOT, bare, recipe

pytestmark = pytest.mark.unit
# The folders that each recipe with a prefix adds to PATH: none, where it has no programs.
PROGRAMS = {
    "aws-ofi-nccl": (),
    "cuda": ("/opt/cuda/bin",),
    "cudnn": (),
    "efa": ("/opt/amazon/efa/bin",),
    "gdrcopy": (),
    "gpt-neox": (),
    "hpcx": tuple(f"/opt/hpcx/{part}/bin" for part in ("ompi", "ucx", "ucc", "sharp")),
    "libfabric": ("/opt/libfabric/bin",),
    "msccl": (),
    "nccl": (),
    "nccl-rdma-sharp": (),
    "nccl-tests": ("/opt/nccl-tests/bin",),
    "neuron-bert": ("/opt/neuron-bert/bin",),
    "nvbandwidth": ("/opt/nvbandwidth/bin",),
    "nvshmem": (),
    "openmpi": ("/opt/openmpi/bin",),
    "osu-micro-benchmarks": tuple(
        f"/opt/osu-micro-benchmarks/libexec/osu-micro-benchmarks/mpi/{kind}"
        for kind in ("pt2pt", "collective", "one-sided")
    ),
    "perftest": ("/opt/perftest/bin",),
    "pmix": ("/opt/pmix/bin",),
    "rdma-core": ("/opt/rdma-core/bin",),
    "script": (),
    "ucc": ("/opt/ucc/bin",),
    "ucx": ("/opt/ucx/bin",),
}
BUILT: dict[str, dict[str, object]] = {
    "cudnn": {"provider": "apt"},
    "script": {"run": ["true"]},
    **{name: {"provider": "source"} for name in ("libfabric", "openmpi", "perftest", "pmix", "rdma-core", "ucx")},
}


def test_every_recipe_with_a_prefix_is_in_the_table_of_programs() -> None:
    names = [path.stem.replace("_", "-") for path in (ROOT / "recipes").glob("*.py")]
    assert {name for name in names if bare(name).prefix} == set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_path_names_only_folders_with_programs(name: str) -> None:
    assert recipe(name, **BUILT.get(name, {})).bins == PROGRAMS[name]


def test_recipes_that_build_nothing_are_not_on_path() -> None:
    for name in ("ucx", "openmpi", "libfabric", "perftest", "pmix", "rdma-core"):
        assert recipe(name).bins == ()
    assert recipe("efa", mpi="4").bins == ("/opt/amazon/efa/bin", "/opt/amazon/openmpi/bin")


def test_the_path_of_an_image() -> None:
    project = Project.find(ROOT)
    resolution = resolve_in(load_image_spec("azure-msccl", project), project)
    folders = image_config(resolution, draft_lock(resolution)).env["PATH"].split(":")
    assert folders[:2] == ["/opt/venv/bin", "/opt/cuda/bin"]
    assert "/opt/msccl/bin" not in folders
