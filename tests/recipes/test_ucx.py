"""UCX: from the distribution or compiled, over what the image has."""

from __future__ import annotations

import pytest

from envbuild.core.errors import SpecError
from tests.support.recipes import image, recipe, steps

pytestmark = pytest.mark.unit


def test_ucx_is_compiled_when_a_version_is_requested() -> None:
    env = image(recipe("rdma-core"))
    assert not recipe("ucx").builds
    assert recipe("ucx").runtime(env).debian == ("libucx0", "ucx-utils")
    assert (recipe("ucx").component, recipe("ucx").package) == ("", "libucx0")
    own = recipe("ucx", version="1.20")
    assert own.builds
    assert (own.component, own.package) == ("ucx", "")
    assert own.sources(env).git[0].tag == "v1.20.1"
    assert own.runtime(env).libraries == ("/opt/ucx/lib",)
    assert recipe("ucx", provider="source").builds
    with pytest.raises(SpecError, match="the distribution has one version of UCX"):
        recipe("ucx", provider="debian", version="1.18")


def test_debians_ucx_beside_cuda_has_to_be_requested() -> None:
    cuda = recipe("cuda", version="13.2")
    assert "no CUDA support" in str(recipe("ucx").refusals(image(cuda, recipe("ucx")))[0])
    meant = recipe("ucx", provider="debian")
    assert meant.refusals(image(cuda, meant)) == ()
    assert recipe("ucx").refusals(image(recipe("ucx"), target="cpu")) == ()


def test_ucx_uses_libraries_of_the_image_and_disables_the_rest() -> None:
    mine = recipe("ucx", version="1.20")
    plain = steps(mine, image(mine, target="cpu"))[-1]
    assert "--without-cuda" in plain
    assert "--without-gdrcopy" in plain
    cuda = steps(mine, image(mine, recipe("cuda", version="13.2"), recipe("gdrcopy")))[-1]
    assert "--with-cuda=/opt/cuda" in cuda
    assert "--with-gdrcopy=/opt/gdrcopy" in cuda
    # nothing in it is for one GPU, so that images for several share it
    h100, a100 = (image(mine, recipe("cuda", version="13.2"), target=name) for name in ("h100-ib", "a100-ib"))
    assert steps(mine, h100) == steps(mine, a100)


def test_ucx_1_20_is_not_checked_over_the_loopback_device() -> None:
    assert recipe("ucx", version="1.20").alone() == ("self,sm",)
    for version in ("1.19", "1.21", "1.22"):
        assert recipe("ucx", version=version).alone() == ("self,sm", "self,tcp")
    assert recipe("ucx").alone() == ("self,sm", "self,tcp")


@pytest.mark.parametrize(("version", "fetched"), [("1.20", False), ("1.14", False), ("1.21", ("*",)), ("1.22", ("*",))])
def test_ucx_is_compiled_with_the_headers_of_its_cuda_transport(version: str, fetched: object) -> None:
    source = recipe("ucx", version=version).source()
    assert source.submodules == fetched and source.left_out


def test_ucx_perftest_has_its_library_in_an_image_without_a_compiler() -> None:
    """The image acceptance failed its audit: ucx_perftest needs libgomp.so.1."""
    made = recipe("ucx", version="1.20")
    assert "libgomp1" in made.runtime(image(made)).debian
