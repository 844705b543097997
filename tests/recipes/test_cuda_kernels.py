"""Recipes that compile CUDA kernels beside torch: for the target, all that were requested, and each module once."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.recipes import COMPILING, ROOT, bare, commands, exported, image, recipe, stack

pytestmark = pytest.mark.unit


# Builds that search a GPU, find none and then silently compile for every one, for none, or take a third-party wheel:
# the variables that prevent this (their sources: the recipe's own comments).
BUILD_VARIABLES = {
    "apex": {"APEX_CPP_EXT": "1", "APEX_CUDA_EXT": "1", "TORCH_CUDA_ARCH_LIST": "8.0"},
    "deepspeed": {
        "DS_ACCELERATOR": "cuda",
        "DS_BUILD_OPS": "0",
        "DS_BUILD_FUSED_ADAM": "1",
        "TORCH_CUDA_ARCH_LIST": "8.0",
    },
    "deeperspeed": {
        "DS_ACCELERATOR": "cuda",
        "DS_BUILD_OPS": "0",
        "DS_BUILD_FUSED_ADAM": "1",
        "TORCH_CUDA_ARCH_LIST": "8.0",
    },
    "flash-attn": {"FLASH_ATTENTION_FORCE_BUILD": "TRUE", "FLASH_ATTN_CUDA_ARCHS": "80"},
    "flash-attn-3": {
        "FLASH_ATTENTION_FORCE_BUILD": "TRUE",
        "FLASH_ATTENTION_OFFLINE_BUILD": "1",
        "FLASH_ATTENTION_DISABLE_SM80": "TRUE",
    },
    "megatron-kernels": {"NVCC_GENCODE": "-gencode=arch=compute_80,code=sm_80"},
    "metaseq": {"TORCH_CUDA_ARCH_LIST": "8.0"},
    "neox-kernels": {"NVCC_GENCODE": "-gencode=arch=compute_80,code=sm_80"},
    "transformer-engine": {
        "NVTE_PYTORCH_FORCE_BUILD": "TRUE",
        "NVTE_FRAMEWORK": "pytorch",
        "NVTE_CUDA_ARCHS": "80",  # without it the build runs nvidia-smi
    },
    "xformers": {"FORCE_CUDA": "1", "TORCH_CUDA_ARCH_LIST": "8.0", "XFORMERS_BUILD_TYPE": "Release"},
}


@pytest.mark.parametrize("name", BUILD_VARIABLES)
def test_builds_without_a_gpu_set_what_they_would_detect(name: str) -> None:
    made = recipe(name, **({"provider": "source"} if name == "xformers" else {}))
    cuda, torch = recipe("cuda", version="12.8", provider="apt"), recipe("torch", version="2.6.0")
    env = image(made, cuda, torch, target="a100-ib")
    variables = exported(made, env)
    assert {key: variables.get(key) for key in BUILD_VARIABLES[name]} == BUILD_VARIABLES[name]
    assert variables["CUDA_HOME"] == "/opt/cuda"
    assert variables["MAX_JOBS"] == "$ENVBUILD_JOBS"
    # and what must exist in the end: none of these builds fails when an extension is left out
    loads = [check for check in made.verify(env) if "transformer_engine.pytorch" in check.command]
    # loaded by its package, from a folder that is not on Python's path: it has no name to import it by
    assert made.wheel and (made.extensions() or (name == "transformer-engine" and loads))


def test_every_recipe_that_compiles_beside_torch_is_among_them() -> None:
    """A new recipe has to list here what its build would detect on a GPU."""
    found = [bare(path.stem.replace("_", "-")) for path in sorted((ROOT / "recipes").glob("*.py"))]
    assert {made.name for made in found if made.wheel and made.on_venv} == {*BUILD_VARIABLES, "torch-ucc"}


@pytest.mark.parametrize("name", COMPILING)
def test_kernels_are_compiled_for_the_target_alone_and_none_is_missed(name: str) -> None:
    made = recipe(name)
    env = stack(made, target="a100-ib")
    text = commands(made, env)
    assert re.search(r'(TORCH_CUDA_ARCH_LIST="8\.0"|compute_80,code=sm_80)', text)
    assert "9.0" not in text and "sm_90" not in text
    checks = [check for check in made.verify(env) if "cuobjdump" in check.command]
    assert checks and all(re.search(check.expect, "/x.so\nELF file    1: x.1.sm_80.cubin") for check in checks)
    assert not any(re.search(check.expect, "/x.so\nELF file    1: x.1.sm_90.cubin") for check in checks)
    assert made.extensions()


def test_the_same_modules_come_from_one_recipe_only() -> None:
    neox, megatron = recipe("neox-kernels"), recipe("megatron-kernels")
    both = set(neox.provides(stack(neox))) & set(megatron.provides(stack(megatron)))
    assert both == {
        "the module scaled_masked_softmax_cuda",
        "the module scaled_upper_triang_masked_softmax_cuda",
    }


def test_build_requirements_are_not_fetched_from_an_index(tmp_path: Path) -> None:
    """There is none in a unit: setup_requires would stop the build."""
    sample = 'setup(\n    setup_requires=[\n        "cython",\n    ],\n    install_requires=["numpy"],\n)\n'
    for name, text in (("metaseq", sample), ("fairscale", 'setup(\n    setup_requires=["ninja"],\n    name="x",\n)\n')):
        made = recipe(name)
        (tmp_path / "setup.py").write_text(text)
        (edit,) = [part for part in commands(made, stack(made)).split(" && \\\n    ") if "setup_requires" in part]
        subprocess.run(["/bin/sh", "-c", edit], cwd=tmp_path, check=True)
        left = (tmp_path / "setup.py").read_text()
        assert "setup_requires" not in left and "ninja" not in left and "cython" not in left
        compile(left, "setup.py", "exec")
