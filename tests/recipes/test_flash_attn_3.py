"""FlashAttention 3: for one GPU and one compiler."""

from __future__ import annotations

import pytest

from envbuild.core.errors import SpecError
from tests.support.recipes import commands, image, recipe

pytestmark = pytest.mark.unit


def test_flash_attention_3_is_for_hopper_and_one_compiler() -> None:
    made = recipe("flash-attn-3", without=["fp8"])
    cuda = recipe("cuda", version="13.2")
    assert made.refusals(image(made, cuda)) == ()
    (refusal,) = map(str, made.refusals(image(made, cuda, target="a100-ib")))
    assert "is for sm_90" in refusal
    (refusal,) = map(str, made.refusals(image(made, recipe("cuda", version="12.6"))))
    assert "downloads another compiler" in refusal
    text = commands(made, image(made, cuda))
    for word in ("OFFLINE_BUILD", "DISABLE_SM80", "DISABLE_FP8"):
        assert f"FLASH_ATTENTION_{word}=" in text
    assert 'FLASH_ATTENTION_FORCE_BUILD="TRUE"' in text  # else it looks for a wheel
    # its setup.py updates this submodule and includes from it; the repository's others are for AMD's GPUs
    assert made.git.submodules == ("csrc/cutlass",)
    other = recipe("flash-attn-3", commit="f" * 40, release="3.1.0")
    assert other.sources(image(other)).gives == ("flash-attn-3==3.1.0",)
    with pytest.raises(SpecError, match=r"'fp7' is not a part of .*\nhint: did you mean 'fp8'"):
        recipe("flash-attn-3", without=["fp7"])
