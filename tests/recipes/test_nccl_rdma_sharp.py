"""NCCL's plugin for SHARP."""

from __future__ import annotations

import pytest

from tests.support.recipes import image, recipe, steps

pytestmark = pytest.mark.unit


def test_sharp_comes_with_hpcx_alone() -> None:
    made = recipe("nccl-rdma-sharp")
    assert "--without-sharp" in "".join(steps(made, image(made)))
    text = "".join(steps(made, image(made, recipe("hpcx", version="2.18", plugin=False))))
    assert "--with-sharp=/opt/hpcx/sharp" in text and "--with-ucx=/opt/hpcx/ucx" in text
