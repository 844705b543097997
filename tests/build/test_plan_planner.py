"""Plans: keys hold exactly what decides a product, and images share what they can."""

from __future__ import annotations

import dataclasses
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from envbuild.build.blocks import hpccm as bridge
from envbuild.build.plan.containerfile import containerfile
from envbuild.build.plan.planner import make_plan
from envbuild.build.plan.units import Input, Plan, Product, Unit
from envbuild.build.steps import Step
from envbuild.core.errors import SpecError
from envbuild.lock.lockfile import read_lock
from envbuild.lock.model import Lock
from envbuild.lock.resolve import resolve_in
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.project import Project
from envbuild.spec.resolve import Resolution

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]


def resolution(name: str) -> Resolution:
    project = Project.find(ROOT)
    return resolve_in(load_image_spec(name, project), project)


def lock(name: str) -> Lock:
    return read_lock(ROOT / "images" / f"{name}.lock")


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    """Return the plans of the GPU images, both from one lock: what differs then is the target's doing alone."""
    locked = lock("h100-nccl")
    return {
        name: make_plan(resolution(name), dataclasses.replace(locked, image=name))
        for name in ("h100-nccl", "a100-nccl")
    }


def test_only_units_of_the_gpu_architecture_differ_between_h100_and_a100(plans: dict[str, Plan]) -> None:
    h100, a100 = (plans[name].keys() for name in ("h100-nccl", "a100-nccl"))
    assert {name for name in h100 if h100[name] != a100[name]} == {"deepspeed", "venv", "glue"}
    shared = {"base", "debian", "venv-toolkit", "venv-core", "root-build-cuda", "cuda", "nccl", "root-build-deepspeed"}
    assert set(h100) - {"deepspeed", "venv", "glue"} == shared


def test_the_kernel_is_compiled_for_the_targets_architecture_alone(plans: dict[str, Plan]) -> None:
    for name, arch in (("h100-nccl", "9.0"), ("a100-nccl", "8.0")):
        commands = "\n".join(step.command for step in plans[name].unit("deepspeed").steps)
        assert f'export TORCH_CUDA_ARCH_LIST="{arch}"' in commands
        assert 'export DS_ACCELERATOR="cuda"' in commands


def test_every_unit_follows_the_units_that_it_needs(plans: dict[str, Plan]) -> None:
    for plan in plans.values():
        names = [unit.name for unit in plan.units]
        assert all(names.index(need) < names.index(unit.name) for unit in plan.units for need in plan.needs(unit))
        assert names[-1] == "glue"


def test_every_unit_has_the_time_of_the_lock(plans: dict[str, Plan]) -> None:
    for plan in plans.values():
        assert {unit.epoch for unit in plan.units} == {lock("h100-nccl").epoch} != {0}


def test_the_image_sets_pytorch_version(plans: dict[str, Plan]) -> None:
    env = plans["h100-nccl"].config.env
    assert env["PYTORCH_VERSION"].startswith("2.15.")
    assert env["PATH"].startswith("/opt/venv/bin:/opt/cuda/bin:")
    assert env["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"


def test_cpu_image_has_no_core_and_shows_no_gpu() -> None:
    plan = make_plan(resolution("cpu-ucx"), lock("cpu-ucx"))
    assert [unit.name for unit in plan.units] == ["base", "debian", "root-build-mpi4py", "mpi4py", "venv", "glue"]
    assert "NVIDIA_VISIBLE_DEVICES" not in plan.config.env
    assert plan.unit("mpi4py").product is Product.WHEEL


@pytest.mark.slow_unit
def test_the_text_is_the_same_in_threads_and_twice() -> None:
    """One process, many images at once: hpccm keeps its target in globals, and the bridge must hold them together."""
    names = ["cpu-ucx", "h100-nccl", "a100-nccl"] * 4
    cases = {name: (resolution(name), lock(name.replace("a100", "h100"))) for name in set(names)}
    with ThreadPoolExecutor(6) as pool:
        texts = list(pool.map(lambda name: containerfile(make_plan(*cases[name])), names))
    assert all(len({text for other, text in zip(names, texts, strict=True) if other == name}) == 1 for name in names)
    assert len(set(texts)) == 3


BASE = Unit("base", "title", (Step("true"),))
TOP = Unit(
    "top",
    "title",
    (Step("make", "build"),),
    ("base",),
    (Input("texts", "text", texts=(("a", "b"),)),),
    {"A": "1"},
    ("/opt/x",),
)


def key(unit: Unit, base: Unit = BASE) -> str:
    from envbuild.oci.config import ImageConfig

    return Plan("image", (base, unit), ImageConfig(), 0).keys()[unit.name]


@pytest.mark.parametrize(
    "change",
    [
        {"steps": (Step("make all", "build"),)},
        {"inputs": (Input("texts", "text", texts=(("a", "c"),)),)},
        {"env": {"A": "2"}},
        {"keep": ("/opt/y",)},
        {"product": Product.WHEEL},
        {"epoch": 5},
        {"lowers": ()},
    ],
)
def test_inputs_that_change_the_product_change_the_key(change: dict[str, object]) -> None:
    assert key(dataclasses.replace(TOP, **change)) != key(TOP)


@pytest.mark.parametrize(
    "change", [{"name": "other"}, {"title": "other"}, {"memory_gb": 4.0}, {"steps": (Step("make", "other words"),)}]
)
def test_inputs_that_do_not_change_the_product_do_not_change_the_key(change: dict[str, object]) -> None:
    assert key(dataclasses.replace(TOP, **change)) == key(TOP)


def test_a_changed_lower_unit_changes_the_keys_above() -> None:
    assert key(TOP, dataclasses.replace(BASE, steps=(Step("false"),))) != key(TOP)


def test_a_misspelt_option_of_a_block_is_refused_with_the_right_one() -> None:
    with pytest.raises(SpecError) as error:
        bridge.apt_get(ospackage=["gcc"])
    assert error.value.hint == "did you mean 'ospackages'?"


def test_keywords_are_found_without_compiling_hpccm_again() -> None:
    """Up to Python 3.12 compiling hpccm again printed the compiler's warnings about its texts."""
    bridge._keywords.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bridge.apt_get(ospackages=["gcc"], download=True)


def test_blocks_do_not_change_their_arguments() -> None:
    options = ["--with-x"]
    with bridge.hpccm_target("amd64"):
        for with_cuda in ("no", "/opt/cuda"):
            bridge.steps([bridge.generic_autotools(package="x.tar.gz", configure_opts=options, with_cuda=with_cuda)])
    assert options == ["--with-x"]


def test_the_state_of_hpccm_is_restored_also_after_an_error() -> None:
    import hpccm.config

    before = {name: getattr(hpccm.config, name) for name in dir(hpccm.config) if name.startswith("g_")}
    with pytest.raises(KeyError), bridge.hpccm_target("sparc"):
        raise AssertionError("not reached")
    with pytest.raises(ZeroDivisionError), bridge.hpccm_target("arm64"):
        raise ZeroDivisionError
    assert {name: getattr(hpccm.config, name) for name in dir(hpccm.config) if name.startswith("g_")} == before


def test_compile_jobs_come_from_the_planner_not_from_nproc() -> None:
    with bridge.hpccm_target("amd64"):
        steps = bridge.steps([bridge.generic_autotools(package="ucx.tar.gz", directory="ucx", prefix="/opt/ucx")])
    text = "\n".join(step.command for step in steps)
    assert 'make -j"$ENVBUILD_JOBS"' in text
    assert "nproc" not in text
    assert text.startswith("mkdir -p /run/envbuild/work && cp /run/envbuild/archives/ucx.tar.gz")


def test_a_recipe_may_not_use_a_build_context() -> None:
    from hpccm.primitives import user

    with pytest.raises(SpecError, match="returned user"):
        bridge.steps([user(user="root")])
