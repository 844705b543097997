"""libfabric: the distribution's, or compiled with CUDA."""

from __future__ import annotations

import pytest

from tests.support.recipes import image, recipe, steps

pytestmark = pytest.mark.unit


def test_the_libfabric_of_a_distribution_has_no_gpu_support() -> None:
    made, cuda = recipe("libfabric"), recipe("cuda", version="13.2")
    (reason,) = map(str, made.refusals(image(made, cuda)))
    assert "no support for CUDA memory" in reason
    assert recipe("libfabric", provider="debian").refusals(image(made, cuda)) == ()
    text = "".join(steps(recipe("libfabric", version="2.4"), image(made, cuda)))
    assert "--enable-cuda-dlopen" in text and "--with-cuda=/opt/cuda" in text and "--disable-psm3" in text
