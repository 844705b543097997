"""Megatron's fused kernels beside apex's."""

from __future__ import annotations

import pytest

from tests.support.recipes import recipe, stack

pytestmark = pytest.mark.unit


def test_megatron_kernels_and_apex_are_the_same_modules() -> None:
    made = recipe("megatron-kernels")
    assert not made.refusals(stack(made))
    (refusal,) = map(str, made.refusals(stack(made, recipe("apex"))))
    assert refusal.endswith("scaled_upper_triang_masked_softmax_cuda as well; remove one of the two")
    assert not made.refusals(stack(made, recipe("apex", extensions_of=["xentropy"])))
    (refusal,) = map(str, recipe("neox-kernels").refusals(stack(recipe("apex"))))
    assert refusal.startswith("layer 'apex' contains fused_rotary_positional_embedding, scaled_masked_softmax_cuda, ")
    assert made.git.tag == "23.06"
    assert recipe("megatron-kernels", commit="0" * 40).git.tag == ""
