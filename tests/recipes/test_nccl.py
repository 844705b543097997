"""NCCL: beside torch's own, and from source."""

from __future__ import annotations

import pytest

from tests.support.recipes import NGC, image, line, matches, recipe, steps

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


@pytest.mark.parametrize(
    ("torch", "cuda", "checked"),
    [
        ({"version": "2.15.0"}, "13", True),
        ({"version": "2.4.1"}, "12", True),
        ({"version": "2.6.0", "provider": "vendor", "channel": "cu126"}, "12", True),
        ({"version": "2.1.2", "provider": "vendor", "channel": "cu118"}, "11", False),  # has NCCL inside itself
        ({"version": "1.13.1"}, "11", False),
    ],
)
def test_the_nccl_of_torch_is_the_locked_one(torch: dict[str, str], cuda: str, checked: bool) -> None:
    """torch.cuda.nccl reports the headers that torch is compiled with, also without a GPU."""
    mine = recipe("nccl", cuda=cuda)
    env = image(recipe("torch", **torch), mine, versions={f"nvidia-nccl-cu{cuda}": "2.27.5"})
    found = [check for check in mine.verify(env) if "torch is compiled for" in check.name]
    assert bool(found) is checked
    for check in found:
        assert check.tier == "run" and "torch.cuda.nccl.version()" in check.command
        assert matches(check, "2.27.5 2.27.5\n")
        assert not matches(check, "2.27.3 2.27.5\n") and not matches(check, "2.27.5 2.28.9\n")


def test_the_torch_of_a_base_image_has_one_nccl() -> None:
    mine = recipe("nccl", provider="base")
    check = line(mine, image(recipe("torch", provider="base"), mine, base=NGC), "torch is compiled for")
    assert matches(check, "2.27.7 2.27.7\n") and not matches(check, "2.27.7 2.28.9\n")


def test_a_wheel_without_torch_states_no_torch() -> None:
    """An image that accepts nodes has NCCL and no framework; the matrix has no facts about the CUDA of no torch."""
    mine = recipe("nccl", version="2.30.7")
    assert mine.matrix(image(mine)) == {"nccl": "2.30.7"}
    assert mine.matrix(image(mine, recipe("torch")))["torch-cuda"] == "13"
