"""CUDA: where it comes from, and for which distributions and machines."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from envbuild.build.blocks import hpccm
from envbuild.core.distributions import DISTRIBUTIONS
from envbuild.core.errors import SpecError
from tests.support.recipes import commands, image, recipe

pytestmark = pytest.mark.unit


def test_wheels_of_cuda_12_are_refused_because_they_hold_no_compiler() -> None:
    old = recipe("cuda", version="12.4")
    assert "do not contain the compiler" in str(old.refusals(image(old))[0])
    new = recipe("cuda", version="13.0")
    assert new.refusals(image(new)) == ()
    vendor = recipe("cuda", version="12.4", provider="apt")
    assert vendor.refusals(image(vendor)) == ()


def test_nvidias_archive_is_named_by_distribution_and_architecture() -> None:
    mine = recipe("cuda", version="12.4", provider="apt")
    (archive,) = mine.sources(image(mine, base="ubuntu:22.04")).repositories
    assert (archive.origin, archive.suite, archive.components) == ("apt:nvidia-cuda/ubuntu2204/x86_64", "./", ())
    (archive,) = mine.sources(image(mine, base="ubuntu:24.04", target="gb200-nvl")).repositories
    assert archive.origin == "apt:nvidia-cuda/ubuntu2404/sbsa"
    keys = {mine.sources(image(mine, base=name)).repositories[0].key for name in DISTRIBUTIONS}
    assert all(re.fullmatch(r"[0-9A-F]{40}", key) for key in keys)
    own = recipe("cuda", version="12.4", provider="apt", key="A" * 40)
    assert own.sources(image(own)).repositories[0].key == "A" * 40
    with pytest.raises(SpecError, match="not the fingerprint"):
        recipe("cuda", version="12.4", provider="apt", key="3bf863cc")
    elsewhere = replace(image(mine), distribution=replace(DISTRIBUTIONS["debian:13"], name="debian:99"))
    assert "debian:99" in str(mine.refusals(elsewhere)[0])


@pytest.mark.parametrize(
    ("version", "package"),
    [
        ("11.3", "cuda-nvprof-11-3"),
        ("11.7", "cuda-nvprof-11-7"),
        ("11.8", "cuda-profiler-api-11-8"),
        ("12.1", "cuda-profiler-api-12-1"),
    ],
)
def test_nvidias_archive_has_the_header_that_old_kernels_include(version: str, package: str) -> None:
    """cuda_profiler_api.h: without it the kernels of apex, Megatron-LM and GPT-NeoX do not compile."""
    mine = recipe("cuda", version=version, provider="apt")
    env = image(mine, base="ubuntu:20.04")
    assert package in mine.sources(env).debian
    assert "test -e /opt/cuda/include/cuda_profiler_api.h" in commands(mine, env)


def test_debians_toolkit_is_taken_from_its_component_without_the_driver() -> None:
    mine = recipe("cuda", version="12.4", provider="debian", flavor="runtime")
    env = image(mine)
    assert mine.refusals(env) == () and mine.meets == ("driver.libcuda-in-image",)
    sources = mine.sources(env)
    (archive,) = sources.repositories
    assert (archive.origin, archive.suite, archive.components) == ("debian:trixie/non-free", "trixie", ("non-free",))
    assert archive.key == ""  # the distribution's own
    assert {"nvidia-cuda-toolkit", "g++-13"} <= set(sources.debian)
    assert set(sources.replaces) == {"libcuda1", "libnvidia-ml1"}
    runtime = mine.runtime(env)
    assert (runtime.debian, runtime.env) == ((), {})
    jobs = replace(mine, flavor="devel").runtime(env)
    assert jobs.debian == ("g++-13",) and jobs.env["CXX"] == "g++-13"


def test_debians_toolkit_has_the_layout_of_nvidias() -> None:
    mine = recipe("cuda", version="12.4", provider="debian", flavor="runtime")
    env = image(mine)
    whole = "\n".join(step.command for step in hpccm.steps(mine.devel(env)))
    assert "/opt/cuda/nvvm/bin/" in whole and "/opt/cuda/host/bin/g++" in whole and "nvcc.profile" in whole
    kept = commands(mine, env)
    assert "/usr/bin/cuobjdump" in kept and "nvcc.profile" not in kept
    assert "nvcc.profile" in commands(replace(mine, flavor="devel"), env)


def test_debians_toolkit_is_refused_elsewhere() -> None:
    mine = recipe("cuda", version="12.4", provider="debian")
    elsewhere = replace(image(mine), distribution=DISTRIBUTIONS["ubuntu:22.04"], base="ubuntu:22.04")
    assert "the base is ubuntu:22.04" in str(mine.refusals(elsewhere)[0])
    other = recipe("cuda", version="12.6", provider="debian")
    assert "the toolkit of debian:13 is CUDA 12.4, not 12.6" in str(other.refusals(image(other))[0])


@pytest.mark.parametrize("provider", ["apt", "base"])
def test_flavor_runtime_is_for_wheels_and_debian(provider: str) -> None:
    with pytest.raises(SpecError, match=f"'flavor: runtime' is for provider: wheels or debian, not for {provider}"):
        recipe("cuda", version="13.2", provider=provider, flavor="runtime")


def test_the_matrix_knows_the_provider_of_cuda() -> None:
    for provider in ("wheels", "apt", "debian", "base"):
        mine = recipe("cuda", version="13.2", provider=provider)
        assert mine.matrix(image(mine)) == {"cuda": "13.2", "cuda-from": provider}


def test_the_tools_that_read_machine_code_are_requested_from_the_vendors_archive() -> None:
    """Verify runs cuobjdump in the image. No package of the list depends on it in every release."""
    made = recipe("cuda", version="11.3", provider="apt")
    packages = made.sources(image(made, base="ubuntu:20.04")).debian
    assert {"cuda-cuobjdump-11-3", "cuda-nvdisasm-11-3", "cuda-minimal-build-11-3"} <= set(packages)
