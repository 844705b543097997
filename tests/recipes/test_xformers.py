"""xFormers: from where torch comes, or from source."""

from __future__ import annotations

import pytest

from tests.support.recipes import commands, image, recipe

pytestmark = pytest.mark.unit


def test_xformers_comes_from_where_torch_does() -> None:
    torch = recipe("torch", version="2.10.0", provider="vendor", channel="cu128")
    made = recipe("xformers", version="0.0.35", provider="vendor")
    env = image(torch, made)
    assert made.sources(env).indexes[0].origin == "pip:pytorch/cu128"
    assert made.runtime(env).python == ("xformers==0.0.35",)
    assert not made.builds and not made.refusals(env)
    assert made.refusals(image(recipe("torch"), made))


def test_xformers_from_source() -> None:
    made = recipe("xformers", provider="source")
    env = image(recipe("torch"), recipe("cuda", version="13.2"), made)
    assert made.builds and made.extensions() == ("xformers._C",)
    assert 'TORCH_CUDA_ARCH_LIST="9.0"' in commands(made, env)
    assert made.refusals(image(recipe("torch"), made))
