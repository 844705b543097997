"""UCC: for the target, over the UCX, NCCL and MPI of the image."""

from __future__ import annotations

import pytest

from tests.support.recipes import image, line, matches, recipe, steps

pytestmark = pytest.mark.unit


def test_ucc_compiles_for_the_target_with_libraries_of_the_image() -> None:
    mine, ucx = recipe("ucc", version="1.8"), recipe("ucx", version="1.20")
    cuda, nccl = recipe("cuda", version="13.2"), recipe("nccl")
    full = steps(mine, image(mine, ucx, cuda, nccl, target="a100-ib"))[-1]
    assert '--with-nvcc-gencode="-gencode=arch=compute_80,code=sm_80"' in full
    assert "--with-ucx=/opt/ucx " in full
    assert "--with-nccl=/opt/nccl" in full
    assert "--without-mpi" in full
    small = steps(mine, image(mine, ucx, target="cpu"))[-1]
    assert "--without-cuda" in small
    assert "--without-nccl" in small
    assert "gencode" not in small
    assert matches(line(mine, image(mine, ucx, cuda, nccl), "with a driver"), "cuda=40 nccl=20 self=50 ucp=10")
    assert not matches(line(mine, image(mine, ucx, cuda, nccl), "with a driver"), "self=50 ucp=10")


def test_uccs_mpi_programs_need_the_distributions_open_mpi() -> None:
    ucx, mine = recipe("ucx", version="1.20"), recipe("ucc", version="1.8", mpi_test=True)
    assert "Open MPI" in str(mine.refusals(image(ucx, mine))[0])
    own = recipe("openmpi", provider="source", version="5.0.10")
    assert "Open MPI" in str(mine.refusals(image(ucx, mine, own))[0])
    env = image(ucx, mine, recipe("openmpi"))
    assert mine.refusals(env) == ()
    assert "libopenmpi-dev" in mine.sources(env).debian
    assert "--with-mpi " in steps(mine, env)[-1]


def test_ucc_on_debians_ucx_compiles_against_its_headers() -> None:
    mine, ucx = recipe("ucc", version="1.8"), recipe("ucx")
    env = image(mine, ucx, target="cpu")
    assert "libucx-dev" in mine.sources(env).debian
    assert "--with-ucx=/usr" in steps(mine, env)[-1]


def test_ucc_perftest_without_peers_fails() -> None:
    ucx, openmpi = recipe("ucx", version="1.22"), recipe("openmpi")
    mine = recipe("ucc", version="1.8", mpi_test=True)
    check = line(mine, image(ucx, openmpi, mine, target="cpu"), "over self,tcp")
    rows = "       Count        Size     Time, us\n       16384       65536       34.27\n       32768      131072\n"
    assert matches(check, rows)
    assert not matches(check, rows.replace("65536", "65535"))
    assert not matches(check, "tl_ucp_ep.h:79 TL_UCP ERROR failed to connect team ep\n" + rows)
    assert not matches(check, rows + "ucc_schedule.h:254 UCC ERROR failure in task\n")
    report = line(mine, image(ucx, openmpi, mine, target="cpu"), "five collectives")
    summary = "total tests:  197\npassed:       197\nskipped:      0\nfailed:       {}\nelapsed:      3s\n"
    assert matches(report, summary.format(0))
    assert not matches(report, summary.format(10))


def test_ucc_1_5_1_reports_the_version_of_its_configure_script() -> None:
    mine = recipe("ucc", version="1.5.1")
    check = line(mine, image(mine, recipe("ucx", version="1.20")), "version and commit")
    assert matches(check, "# UCC version=1.5.0 revision 16ec7ab\n")
    assert not matches(check, "# UCC version=1.5.1 revision 16ec7ab\n")
