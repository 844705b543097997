"""NCCL's plugin for libfabric: what it depends on, and the file name that NVIDIA's images load."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.recipes import image, recipe, steps

pytestmark = pytest.mark.unit


def test_the_plugin_needs_a_libfabric() -> None:
    made, cuda = recipe("aws-ofi-nccl", version="1.21.1"), recipe("cuda", version="13.2")
    (reason,) = map(str, made.refusals(image(made, cuda)))
    assert "the image has none; add libfabric" in reason
    efa = image(made, cuda, recipe("efa", version="1.47.0"), target="p5-efa")
    assert "--with-libfabric=/opt/amazon/efa" in "".join(steps(made, efa))
    assert "--enable-platform-aws" in "".join(steps(made, efa))
    other = image(made, cuda, recipe("libfabric", provider="debian"))
    assert "--with-libfabric" not in "".join(steps(made, other))
    assert "--disable-platform-aws" in "".join(steps(made, other))
    assert "libfabric-dev" in made.sources(other).debian and "libfabric-dev" not in made.sources(efa).debian


@pytest.mark.parametrize(
    ("version", "tag", "has"),
    [("1.21.1", "v1.21.1", "--enable-ngc"), ("1.13.2", "v1.13.2-aws", "ln -s libnccl-net.so lib/libnccl-net-aws-ofi")],
)
def test_the_file_name_that_nvidias_images_load(version: str, tag: str, has: str) -> None:
    made = recipe("aws-ofi-nccl", version=version)
    assert made.sources(image(made)).git[0].tag == tag
    fabric = recipe("libfabric", version="2.4.0")
    assert has in "".join(steps(made, image(made, fabric, base="nvcr.io/nvidia/pytorch:25.10-py3")))
    assert has not in "".join(steps(made, image(made, fabric)))


@pytest.mark.parametrize(
    ("fabric", "folders"),
    [
        (
            (recipe("libfabric", version="2.6.0"), recipe("rdma-core", version="60.2")),
            "/opt/libfabric/lib:/opt/rdma-core/lib",
        ),
        ((recipe("efa", version="1.47.0"),), "/opt/amazon/efa/lib"),
    ],
)
def test_configure_finds_an_own_rdma_core_below_libfabric(fabric: tuple[Any, ...], folders: str) -> None:
    made = recipe("aws-ofi-nccl", version="1.21.1")
    assert f'LD_LIBRARY_PATH="{folders}"' in "".join(steps(made, image(made, *fabric)))
    for other in (recipe("libfabric", provider="debian"), recipe("libfabric", version="2.6.0")):
        assert "LD_LIBRARY_PATH" not in "".join(steps(made, image(made, other)))
