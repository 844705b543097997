"""perftest: compiled for the CPU of the target, with GPU memory where there is CUDA."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.recipes import exported, image, recipe, steps

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("cpu", "avx2", "sse42"), [("x86-64", 0, 0), ("x86-64-v2", 0, 1), ("x86-64-v3", 1, 0)])
def test_perftest_is_for_the_cpu_of_the_target(cpu: str, avx2: int, sse42: int, tmp_path: Path) -> None:
    made = recipe("perftest", version="26.04.17")
    env = image(made)
    env = dataclasses.replace(env, target=dataclasses.replace(env.target, cpu=cpu))
    source = tmp_path / "configure.ac"
    source.write_text('__builtin_cpu_supports("avx2") ? 0 : 1; __builtin_cpu_supports ("sse4.2")\n')
    text = "".join(steps(made, env))
    (line,) = re.findall(r"sed -i -e '[^']*' -e '[^']*' configure.ac", text)
    subprocess.run(["/bin/sh", "-c", line], cwd=tmp_path, check=True)
    assert source.read_text() == f"{avx2} ? 0 : 1; {sse42}\n"
    assert ("-include xmmintrin.h" in text) == (cpu == "x86-64")


def test_perftest_with_gpu_memory() -> None:
    cuda, plain = recipe("cuda", version="13.2"), recipe("perftest")
    assert "host memory only" in str(plain.refusals(image(plain, cuda))[0])
    made = recipe("perftest", version="4.5-0.12")
    text = "".join(steps(made, image(made, cuda)))
    assert "CUDA_H_PATH" in text and "code=sm_90" in text
    assert made.sources(image(made, cuda)).git[0].tag == "v4.5-0.12"
    assert made.verify(image(made, cuda))[0].expect == "Version: 6.03"


def test_the_kernels_of_perftest_are_for_the_target_alone() -> None:
    """Its makefile passes NVCCFLAGS to the compiler and not to the link, which adds code for nvcc's default GPU."""
    made = recipe("perftest", provider="source")
    env = image(made, recipe("cuda", version="13.2"), target="a100-ib")
    flags = exported(made, env)
    assert flags["NVCC_APPEND_FLAGS"] == "$NVCC_APPEND_FLAGS -gencode=arch=compute_80,code=sm_80"
    assert "NVCCFLAGS" not in flags
