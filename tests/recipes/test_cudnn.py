"""cuDNN: the names of its packages."""

from __future__ import annotations

import pytest

from tests.support.recipes import image, recipe

pytestmark = pytest.mark.unit


def test_packages_of_cudnn_have_cuda_in_their_names_since_9() -> None:
    assert recipe("cudnn", provider="apt", cuda="12").names() == ("libcudnn9-cuda-12", "libcudnn9-dev-cuda-12")
    assert recipe("cudnn", provider="apt", cuda="12", version="8.9").names() == ("libcudnn8", "libcudnn8-dev")
    cuda, mine = recipe("cuda", version="12.4", provider="apt"), recipe("cudnn", provider="apt", cuda="12")
    env = image(cuda, mine)
    assert mine.sources(env).repositories == cuda.sources(env).repositories
