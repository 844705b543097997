"""The compiler that a CUDA toolkit requires of the units on top of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from envbuild.build.plan.planner import make_plan
from envbuild.lock.draft import draft_from_request
from envbuild.lock.request import lock_request
from envbuild.spec import target as targets
from envbuild.spec.host_compiler import compiler_variables, host_compiler, recipes_below, with_host_compiler
from envbuild.spec.recipe import Sources
from envbuild.spec.resolve import Resolution, resolve
from tests.golden.test_recipes import PROJECT, sample
from tests.support.recipes import recipe

pytestmark = pytest.mark.unit
CUDA = {"version": "12.4", "provider": "debian", "flavor": "runtime"}
LAYERS = {
    "cuda": CUDA,
    "gdrcopy": {},
    "nccl": {"cuda": "12"},
    "ucx": {"version": "1.20.1"},
    "ucc": {"version": "1.8.0"},
    "nccl-tests": {"version": "2.19.6"},
}


def resolved(**layers: Any) -> Resolution:
    options = {**LAYERS, **layers}
    recipes = {name: recipe(name, **given) for name, given in options.items()}
    spec = replace(sample("nccl-tests", {}), recipes=recipes, target="h100-ib-550")
    return resolve(spec, targets.load_target(spec.target, PROJECT))


def test_recipes_below_are_found_through_others() -> None:
    recipes = {name: recipe(name) for name in ("cuda", "gdrcopy", "ucx", "ucc")}
    assert recipes_below("ucc", recipes) == ["cuda", "gdrcopy", "ucx"]
    assert recipes_below("gdrcopy", recipes) == []
    assert host_compiler("ucc", recipes) == ""


def test_only_a_unit_that_compiles_gets_the_compiler() -> None:
    assert with_host_compiler(Sources(debian=("g++",)), "13").debian == ("g++", "g++-13")
    assert with_host_compiler(Sources(debian=("python3",)), "13").debian == ("python3",)
    assert with_host_compiler(Sources(debian=("g++",)), "").debian == ("g++",)
    assert compiler_variables("") == {}


def test_units_above_the_toolkit_compile_with_its_compiler() -> None:
    resolution = resolved()
    debian = {name: sources.debian for name, sources in resolution.sources.items()}
    assert "g++-13" in debian["ucc"] and "g++-13" in debian["nccl-tests"] and "g++-13" not in debian["gdrcopy"]
    units = {unit.name: unit for unit in make_plan(resolution, draft_from_request(lock_request(resolution))).units}
    assert units["ucc"].env == {"CC": "gcc-13", "CUDAHOSTCXX": "g++-13", "CXX": "g++-13"}
    assert units["gdrcopy"].env == {} and units["cuda"].env == {}
    assert "root-build-cuda" in units["devel-cuda"].lowers and not units["devel-cuda"].inputs
    assert "libcuda1" in units["root-build-cuda"].steps[0].command + units["root-build-cuda"].steps[-1].command


def test_units_above_another_toolkit_compile_with_the_distributions() -> None:
    resolution = resolved(cuda={"version": "13.2"}, nccl={})
    assert not any("g++-13" in sources.debian for sources in resolution.sources.values())
