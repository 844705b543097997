"""Properties of every recipe: its steps are shell, its sources are pinned, its libraries are once in an image."""

from __future__ import annotations

import inspect
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.solve.request import parse_request
from envbuild.spec.recipe import Recipe, RecipeEnv
from envbuild.spec.recipe_calls import recipe_file
from tests.support.recipes import (
    COMPILING,
    NGC,
    image,
    line,
    matches,
    recipe,
    stack,
    steps,
)
from tests.support.recipes import matrix as matrix  # a fixture
from tests.support.sample_recipes import CASES, EVERY, IDS, SAMPLES, sample, whole

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("make", "case"), CASES)
def test_commands_are_valid_shell_and_python(
    make: Callable[..., tuple[Recipe, RecipeEnv]], case: tuple[Any, ...]
) -> None:
    made, env = make(*case)
    texts = [*steps(made, env), *(check.command for check in made.verify(env))]
    assert texts
    for text in texts:
        done = subprocess.run(["/bin/sh", "-n"], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), text
        for program in re.findall(r'python3 -c "([^"]*)"', text):
            compile(program, text, "exec")
    for check in made.verify(env):
        re.compile(check.expect, re.MULTILINE)
    assert steps(made, env) == steps(made, env)


@pytest.mark.parametrize(("name", "options"), EVERY)
def test_only_recipes_that_build_have_steps(name: str, options: dict[str, Any]) -> None:
    mine, env = whole(name, options)
    assert mine.builds == bool(mine.builds and steps(mine, env))
    asked = mine.sources(env)
    assert bool(asked.git) <= mine.builds
    for git in asked.git:
        assert any(f"archives/{git.file}" in text for text in steps(mine, env))
    if mine.builds and mine.prefix:
        assert any(mine.prefix in text for text in steps(mine, env))


def test_the_base_provider_needs_an_image_as_base() -> None:
    for name in ("cuda", "nccl", "cudnn", "openmpi"):
        mine = recipe(name, provider="base", **({"version": "13.0"} if name == "cuda" else {}))
        assert len(mine.refusals(image(mine))) == 1
        assert mine.refusals(image(mine, base=NGC)) == ()
        assert mine.promised(image(mine, base=NGC))
        assert not recipe(name).promised(image(recipe(name), base=NGC))


def test_a_wheel_for_another_cuda_than_the_images_is_refused() -> None:
    cuda = recipe("cuda", version="12.4", provider="apt")
    for name in ("nccl", "cudnn"):
        mine = recipe(name)
        assert "write cuda: '12'" in str(mine.refusals(image(cuda, mine))[0])
        fitting = recipe(name, cuda="12")
        assert fitting.refusals(image(cuda, fitting)) == ()
        asked = fitting.runtime(image(cuda, fitting))
        assert (*asked.toolkit, *asked.core)[0].endswith("-cu12")


def test_verify_lines_accept_right_answers_only() -> None:
    cuda, ucx = recipe("cuda", version="13.2"), recipe("ucx", version="1.20")
    tests, nccl = recipe("nccl-tests"), recipe("nccl")
    env = image(cuda, ucx, nccl, tests, versions={"nvidia-nccl-cu13": "2.30.7"})
    output = "# Library version: 1.20.1\n# Library path: /opt/ucx/lib/libucs.so.0\n# Git branch '', revision {}\n"
    assert matches(line(ucx, env, "version and commit"), output.format("d8e50df"))
    assert not matches(line(ucx, env, "version and commit"), output.format(""))
    both = line(ucx, env, "CUDA module")
    assert matches(both, "without 0\nwith 13\n")
    assert not matches(both, "without 0\nwith 0\n")
    assert not matches(both, "without 13\nwith 13\n")
    assert matches(line(nccl, env, "locked version"), "2.30.7\n")
    assert not matches(line(nccl, env, "locked version"), "2.30.70\n")
    starts = line(tests, env, "starts")
    output = "# nccl-tests version 2.19.6 nccl-headers={} nccl-library=23007\n'CUDA driver version is insufficient'\n"
    assert matches(starts, output.format(23007))
    assert not matches(starts, output.format(23004))


@pytest.mark.parametrize("version", ["2.13.13", "2.14.1", "2.15.2", "2.16.9"])
def test_old_nccl_tests_print_no_versions(version: str) -> None:
    """Before 2.17.10 the first line states the sizes, and no line NCCL's version."""
    tests = recipe("nccl-tests", version=version)
    starts = line(tests, image(recipe("cuda", version="11.3", provider="apt"), recipe("nccl"), tests), "starts")
    output = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 1048576(bytes)\n#\n# Using devices\n{}\n"
    error = "node: Test CUDA failure common.cu:893 'CUDA driver version is insufficient for CUDA runtime version'"
    assert matches(starts, output.format(error))
    assert not matches(starts, output.format("Segmentation fault"))


@pytest.mark.parametrize(("name", "options", "layers", "base"), SAMPLES, ids=IDS)
def test_it_is_accepted_and_every_source_is_pinned(
    name: str, options: dict[str, Any], layers: tuple[str, ...], base: str
) -> None:
    made, env = sample(name, options, layers, base)
    assert made.refusals(env) == ()
    sources = made.sources(env)
    assert all(re.fullmatch("[0-9a-f]{40}", git.commit) for git in sources.git)
    for git in sources.git:  # a lock refuses others, once it has the commit
        assert git.submodules == ("*",) or git.left_out, "Git: write left_out=, the reason"
    assert all(re.fullmatch("[0-9a-f]{64}", archive.sha256) for archive in sources.archives)
    assert all(re.fullmatch("[0-9A-F]{40}", repository.key) for repository in sources.repositories)
    assert made.builds == bool(made.build(env))


def test_one_verbs_one_network_plugin_one_mpi() -> None:
    """Every recipe that provides a library that may be only once in an image declares it."""

    def providers_of(library: str) -> set[str]:
        return {name for name, *rest in SAMPLES if library in sample(name, *rest)[0].provides(sample(name, *rest)[1])}

    assert providers_of("libibverbs") == {"rdma-core", "ofed", "efa"}
    assert providers_of("libnccl-net") == {"hpcx", "efa", "aws-ofi-nccl", "nccl-rdma-sharp"}
    assert providers_of("libmpi") == {"hpcx", "efa"}
    assert providers_of("libfabric") == {"libfabric", "efa"}
    assert "libnccl-net" not in recipe("hpcx", plugin=False).provides(image())
    assert "libnccl-net" not in recipe("efa").provides(image())


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


FROM_GIT = (*COMPILING, "gpt-neox", "megatron-lm", "fairscale", "lm-dataformat")


@pytest.mark.parametrize("name", FROM_GIT)
def test_sources_are_whole_commits_and_their_wheels_are_named(name: str) -> None:
    made = recipe(name)
    env = stack(made, recipe("deeperspeed"), recipe("fairscale"))
    sources = made.sources(env)
    (git,) = sources.git
    assert re.fullmatch(r"[0-9a-f]{40}", git.commit)
    assert git.origin.startswith("github:")
    assert bool(made.wheel) == bool(sources.gives)
    for text in sources.gives:
        assert re.fullmatch(r"[a-z-]+==[0-9][0-9A-Za-z.+]*", text)


@pytest.mark.parametrize("name", [*FROM_GIT, "neuron", "neuronx-distributed"])
def test_components_of_a_recipe_are_known_to_the_matrix(name: str, matrix: FactTable) -> None:
    made = recipe(name)
    components = made.matrix(stack(made, recipe("neuron")))
    parse_request(
        [f"{component}{'' if text[:1] in '=<>!' else '='}{text}" for component, text in components.items()], matrix
    )


def test_a_recipe_contains_no_host() -> None:
    for name in (*FROM_GIT, "neuron", "neuronx-distributed"):
        text = inspect.cleandoc(recipe_file(recipe(name)).read_text())
        assert not re.search(r"https?://|\b[a-z0-9-]+\.(com|org|io|net)\b", text), name
