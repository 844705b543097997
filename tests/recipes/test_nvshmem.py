"""NVSHMEM: the wheel for the CUDA of the image."""

from __future__ import annotations

import pytest

from tests.support.recipes import image, recipe

pytestmark = pytest.mark.unit


def test_nvshmem_is_for_the_cuda_of_the_image() -> None:
    made = recipe("nvshmem", version="3.7")
    assert made.runtime(image()).toolkit == ("nvidia-nvshmem-cu13==3.7.*",)
    (reason,) = map(str, made.refusals(image(made, recipe("cuda", provider="apt", version="12.6"))))
    assert "write cuda: '12'" in reason
    assert recipe("nvshmem", cuda="12").runtime(image()).toolkit == ("nvidia-nvshmem-cu12",)
