"""Open MPI: where it is, and how its versions are compiled."""

from __future__ import annotations

import re
from typing import Any

import pytest

from envbuild.core.errors import SpecError
from tests.support.recipes import NGC, image, recipe, steps

pytestmark = pytest.mark.unit


def test_open_mpi_returns_its_prefix() -> None:
    debian, own = recipe("openmpi"), recipe("openmpi", provider="source", version="5.0.10")
    assert debian.home(image(debian)) == "/usr/lib/x86_64-linux-gnu/openmpi"
    assert debian.home(image(debian, target="gb200-nvl")) == "/usr/lib/aarch64-linux-gnu/openmpi"
    assert (own.home(image(own)), own.mpicc(image(own))) == ("/opt/openmpi", "/opt/openmpi/bin/mpicc")
    base = recipe("openmpi", provider="base", folder="/opt/amazon/openmpi")
    assert base.promised(image(base, base=NGC))[0] == "/opt/amazon/openmpi/bin/mpirun"
    mpi4py = recipe("mpi4py")
    assert 'MPICC="/opt/openmpi/bin/mpicc"' in "\n".join(steps(mpi4py, image(own, mpi4py)))
    assert "libopenmpi-dev" not in mpi4py.sources(image(own, mpi4py)).debian
    assert "libopenmpi-dev" in mpi4py.sources(image(debian, mpi4py)).debian


@pytest.mark.parametrize("folder", ["relative/mpi", "/opt/mpi; reboot", "/opt/a b", "/opt/'x", "/opt/mpi/"])
def test_an_invalid_folder_of_open_mpi_is_refused(folder: str) -> None:
    with pytest.raises(SpecError, match="not the path of a folder"):
        recipe("openmpi", provider="base", folder=folder)


def test_debians_open_mpi_has_one_version() -> None:
    mine = recipe("openmpi", version="4.1.5")
    assert "one version" in str(mine.refusals(image(mine))[0])


def test_open_mpi_4_has_other_options() -> None:
    fourth = recipe("openmpi", provider="source", version="4.1.5")
    fifth = recipe("openmpi", provider="source", version="5.0")
    ucx = recipe("ucx", version="1.20")
    assert fourth.source().submodules == fifth.source().submodules == ("*",)  # 4.x has none
    assert "prrte" not in steps(fourth, image(fourth, ucx))[-1]
    assert "--with-prrte=internal" in steps(fifth, image(fifth, ucx))[-1]
    assert "--with-ucx=/opt/ucx" in steps(fifth, image(fifth, ucx))[-1]
    assert "--without-ucx" in steps(fifth, image(fifth, recipe("ucx")))[-1]


def test_the_bootstrap_of_prrte_runs_no_git() -> None:
    """Its autogen.pl runs `git submodule status` if there is a .gitmodules; units have no git."""
    for version, removed in (("5.0.10", True), ("4.1.5", False)):
        own = recipe("openmpi", provider="source", version=version)
        text = steps(own, image(own))[-1]
        assert ("rm -f 3rd-party/prrte/.gitmodules" in text.partition("./autogen.pl")[0]) is removed


@pytest.mark.parametrize(
    ("fabric", "folders", "packages"),
    [
        ((recipe("libfabric", version="2.6.0"),), "/opt/libfabric/lib", {"libibverbs1", "librdmacm1t64"}),
        (
            (recipe("libfabric", version="2.6.0"), recipe("rdma-core", version="60.2")),
            "/opt/libfabric/lib:/opt/rdma-core/lib",
            set(),
        ),
        ((recipe("efa", version="1.47.0"),), "/opt/amazon/efa/lib", set()),
    ],
)
def test_the_linker_finds_what_open_mpi_is_linked_with(
    fabric: tuple[Any, ...], folders: str, packages: set[str]
) -> None:
    """It follows the libraries of libfabric to libibverbs, in configure and in programs that are linked with MPI."""
    mpi = recipe("openmpi", provider="source", version="5.0.10")
    measure, mpi4py = recipe("nccl-tests"), recipe("mpi4py")
    osu = recipe("osu-micro-benchmarks", version="7.5.2")
    env = image(mpi, measure, mpi4py, osu, recipe("nccl", cuda="13"), recipe("cuda", version="13.2"), *fabric)
    for made in (mpi, measure, mpi4py, osu):
        assert re.search(rf"\bLD_LIBRARY_PATH=\"?{folders}\b", "\n".join(steps(made, env))), made.name
        assert {"libibverbs1", "librdmacm1t64"} & set(made.sources(env).debian) == packages, made.name


def test_open_mpi_without_other_prefixes_needs_no_link_path() -> None:
    debian, own, ucx = recipe("openmpi"), recipe("openmpi", provider="source"), recipe("ucx", version="1.20")
    assert debian.link_path(image(debian, ucx)) == own.link_path(image(own)) == {}
    assert own.link_path(image(own, ucx)) == {"LD_LIBRARY_PATH": "/opt/ucx/lib"}
