"""Contents of the configure stage of a pair, from drafts of locks: nothing is fetched and nothing runs."""

from __future__ import annotations

import pytest

from envbuild.build.plan.planner import make_plan
from envbuild.build.plan.units import Plan, Product
from envbuild.lock.draft import draft_from_request
from envbuild.lock.request import lock_request
from envbuild.spec import target as targets
from envbuild.spec.resolve import resolve
from tests.golden.test_recipes import PROJECT
from tests.rehearsal.configure import WITH_HEAVY, heavy, stage_plan
from tests.rehearsal.pairs import Pair

pytestmark = pytest.mark.unit


def plan(name: str, version: str = "", provider: str = "") -> Plan:
    spec = Pair(name, version, provider).spec()
    resolution = resolve(spec, targets.load_target(spec.target, PROJECT))
    return make_plan(resolution, draft_from_request(lock_request(resolution)))


def commands(name: str, version: str = "", provider: str = "") -> str:
    return "\n".join(step.command for step in stage_plan(plan(name, version, provider), name).unit(name).steps)


def test_only_the_units_below_that_are_expensive_are_named() -> None:
    """The links of layer cuda take a second; what compiles in minutes is named, and so are wheels of gigabytes."""
    assert heavy(plan("pmix", "5.0.8", "source"), "pmix") == ""
    assert heavy(plan("nccl", "2.30.7", "source"), "nccl") == f"the CUDA toolkit is below its unit ({WITH_HEAVY})"
    assert heavy(plan("apex"), "apex") == f"torch and the CUDA toolkit are below its unit ({WITH_HEAVY})"
    assert heavy(plan("openmpi", "4.1.8", "source"), "openmpi") == f"ucx would be compiled first ({WITH_HEAVY})"


def test_a_stage_ends_before_the_first_command_that_compiles() -> None:
    """Of makefiles without a configure script it is what make would do, of a wheel its metadata."""
    ucc = commands("ucc", "1.8.0")
    assert "./configure --prefix=/opt/ucc" in ucc and "make -" not in ucc and ucc.endswith("mkdir -p /opt/ucc")
    nccl = commands("nccl", "2.30.7", "source")
    assert 'make -n -j "$ENVBUILD_JOBS" src.lib' in nccl and "cp -a build" not in nccl
    apex = commands("apex")
    assert "setup.py -q egg_info" in apex and "uv build" not in apex.lower().replace('"$uv"', "uv")


@pytest.mark.parametrize(
    ("name", "folder"), [("apex", "/opt/rehearsed"), ("mpi4py", "/opt/rehearsed"), ("ucc", "/opt/ucc")]
)
def test_the_stage_of_a_unit_is_what_an_engine_builds(name: str, folder: str) -> None:
    """It builds what ends in the image, and a unit of wheels alone would pass without a command."""
    unit = stage_plan(plan(name), name).unit(name)
    assert unit.in_image and unit.product is Product.LAYER
    assert unit.keep == (folder,) and unit.steps[-1].command == f"mkdir -p {folder}"


@pytest.mark.parametrize("version", ["0.14.0", "0.15.3"])
def test_the_sample_of_a_version_can_differ_from_that_of_its_recipe(version: str) -> None:
    assert Pair("megatron-lm", version, "").spec().base == "debian:12"
    assert Pair("megatron-lm", "0.19.0", "").spec().base == "debian:13"
