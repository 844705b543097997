"""nvbandwidth: for the target's GPU, without looking for one."""

from __future__ import annotations

import pytest

from tests.support.recipes import commands, image, line, matches, recipe

pytestmark = pytest.mark.unit


def test_nvbandwidth_is_compiled_for_the_target_alone() -> None:
    made, cuda = recipe("nvbandwidth"), recipe("cuda", version="13.2")
    env = image(made, cuda, target="a100-ib")
    # without an architecture its CMakeLists.txt runs a program that looks for a GPU
    assert "-DCMAKE_CUDA_ARCHITECTURES=80-real " in commands(made, env)
    assert "sm_80 and nothing else" in line(made, env, "nothing else").name
    assert made.refusals(env) == ()
    assert "measures GPUs" in str(made.refusals(image(made, cuda, target="cpu"))[0])


def test_nvbandwidth_is_started_without_a_driver() -> None:
    """The version is printed before the driver is initialized (nvbandwidth.cpp)."""
    made = recipe("nvbandwidth", version="0.8")
    check = line(made, image(made, recipe("cuda", version="13.2")), "lists its tests")
    listed = "nvbandwidth Version: v0.8\nBuilt from Git version: \n\nIndex, Name:\n0, host_to_device_memcpy_ce:\n"
    assert matches(check, listed)
    assert not matches(check, listed.replace("v0.8", "v0.7")) and not matches(check, "cannot open shared object file")
