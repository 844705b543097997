"""rdma-core: the distribution's, or one compiled at a version."""

from __future__ import annotations

import ctypes
import ctypes.util
import subprocess

import pytest

from envbuild.core.errors import SpecError
from tests.support.recipes import image, recipe, steps

pytestmark = pytest.mark.unit


def test_an_own_rdma_core_is_the_only_one() -> None:
    own = recipe("rdma-core", version="62.1")
    compiled = recipe("perftest", provider="source")
    env = image(own, compiled)
    assert own.refusals(env) == ()
    assert "libibverbs1" not in compiled.runtime(env).debian
    assert "--enable-efa=/opt/rdma-core" in "".join(steps(recipe("libfabric", version="2.4.0"), env))


def test_an_unknown_version_of_rdma_core() -> None:
    asked = recipe("rdma-core", version="99.9")
    assert "the commit of rdma-core 99.9 is not known" in str(asked.refusals(image(asked))[0])
    given = recipe("rdma-core", version="99.9", commit="a" * 40)
    assert given.refusals(image(given)) == ()
    assert given.sources(image(given)).git[0].tag == ""
    with pytest.raises(SpecError, match="one version of rdma-core"):
        recipe("rdma-core", version="62.1", provider="debian")


def test_the_check_of_verbs_runs_here() -> None:
    if not ctypes.util.find_library("ibverbs"):
        pytest.skip("libibverbs is not installed")
    check = recipe("rdma-core").verify(image())[0]
    output = subprocess.run(["/bin/sh", "-c", check.command], capture_output=True, text=True).stdout
    assert "verbs True" in output
