"""Transformer Engine: its core for the CUDA of the image."""

from __future__ import annotations

import pytest

from tests.support.recipes import image, recipe

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("cuda", "core"), [("13.2", "13"), ("12.8", "12")])
def test_transformer_engine_takes_the_core_of_its_cuda(cuda: str, core: str) -> None:
    made = recipe("transformer-engine", version="2.20.2")
    env = image(made, recipe("cuda", version=cuda), recipe("torch"))
    python = made.runtime(env).python
    assert f"transformer-engine-cu{core}==2.20.2" in python and "transformer-engine==2.20.2" in python
    assert made.sources(env).sdists == ("transformer-engine-torch==2.20.2",)
    assert not made.refusals(env)


def test_transformer_engine_needs_a_gpu_and_a_core() -> None:
    made = recipe("transformer-engine")
    env = image(made, recipe("cuda", version="11.8"), recipe("torch"), target="cpu")
    assert len(made.refusals(env)) == 2
