"""NCCL: beside torch's own, and from source."""

from __future__ import annotations

import pytest

from tests.support.recipes import image, recipe, steps

pytestmark = pytest.mark.unit


def test_nccl_beside_a_ready_made_torch_is_the_wheel() -> None:
    cuda, torch = recipe("cuda", version="13.2"), recipe("torch", version="2.15")
    mine = recipe("nccl", provider="source", version="2.30.7")
    assert "loads its own NCCL" in str(mine.refusals(image(cuda, torch, mine))[0])
    assert mine.refusals(image(cuda, mine)) == ()
    built = recipe("torch", version="2.15.0", provider="source", commit="a" * 40)
    assert mine.refusals(image(cuda, built, mine)) == ()
    assert recipe("nccl").refusals(image(cuda, torch, recipe("nccl"))) == ()


def test_nccl_from_source_is_for_one_gpu_and_meets_the_matrix_conditions() -> None:
    mine = recipe("nccl", provider="source", version="2.30")
    env = image(mine, recipe("cuda", version="13.2"), target="a100-ib")
    text = "\n".join(steps(mine, env))
    assert "NVCC_GENCODE=-gencode=arch=compute_80,code=sm_80 " in text
    assert "sm_90" not in text
    assert mine.sources(env).git[0].tag == "v2.30.7-1"
    assert (mine.arch_specific, bool(mine.meets)) == (True, True)
    assert (recipe("nccl").arch_specific, recipe("nccl").meets) == (False, ())
