"""MSCCL: what can load it, and what it is compiled for."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.recipes import image, line, matches, recipe, steps

pytestmark = pytest.mark.unit


def test_msccl_and_a_cuda_that_is_too_new() -> None:
    made = recipe("msccl")
    (reason,) = map(str, made.refusals(image(made, recipe("cuda", version="13.2"))))
    assert "do not compile with CUDA 13 " in reason and reason.endswith("take CUDA 12")


def test_a_torch_wheel_never_loads_msccl() -> None:
    made, cuda = recipe("msccl"), recipe("cuda", provider="apt", version="12.6")
    (reason,) = map(str, made.refusals(image(made, cuda, recipe("torch", version="2.6"), base="ubuntu:22.04")))
    assert "the torch wheel loads the NCCL of its own package" in reason
    base = "nvcr.io/nvidia/pytorch:25.10-py3"
    assert made.refusals(image(made, cuda, recipe("torch", provider="base"), base=base)) == ()
    assert made.provides(image()) == recipe("nccl").provides(image())


def test_msccl_is_compiled_for_the_target_and_verified() -> None:
    made = recipe("msccl", algorithms="ndv4")
    env = image(made, recipe("cuda", provider="apt", version="12.6"), target="a100-ib", base="ubuntu:22.04")
    text = "\n".join(steps(made, env))
    assert "compute_80,code=sm_80" in text and "msccl-algorithms/ndv4/*.xml" in text
    assert "nccl 22304" in made.verify(env)[0].expect
    (source,) = recipe("msccl").sources(env).git
    assert (source.name, source.tag) == ("msccl", "")  # a tag that upstream never had was reported as deleted


@pytest.mark.parametrize(("version", "compiles"), [("", False), ("2.15.2", False), ("2.14.1", True), ("2.13.13", True)])
def test_nccl_tests_that_need_the_header_of_a_newer_nccl_are_refused(version: str, compiles: bool) -> None:
    """MSCCL has nccl.h include cuda_fp8.h; common.cu from 2.15.2 on then uses types that NCCL has since 2.24."""
    tests = recipe("nccl-tests", **({"version": version} if version else {}))
    cuda = recipe("cuda", provider="apt", version="12.6")
    found = tests.refusals(image(tests, recipe("msccl"), cuda, base="ubuntu:22.04"))
    assert [refusal.hint for refusal in found] == ([] if compiles else ['write nccl-tests: "2.14.1"'])
    assert tests.refusals(image(tests, recipe("nccl"), cuda, base="ubuntu:22.04")) == ()


def test_that_torch_loads_msccl_is_verified() -> None:
    """The loader's choice for another program proves nothing: torch's library can name folders of its own."""
    made, cuda = recipe("msccl"), recipe("cuda", provider="apt", version="12.6")
    base = "nvcr.io/nvidia/pytorch:25.03-py3"
    check = line(made, image(made, cuda, recipe("torch", provider="base"), base=base), "torch loads it")
    assert matches(check, "['/opt/msccl/lib/libnccl.so.2.23.4']\n")
    assert not matches(check, "['/opt/msccl/lib/libnccl.so.2.23.4', '/usr/lib/x86_64-linux-gnu/libnccl.so.2.25.1']\n")
    assert not matches(check, "['/usr/lib/x86_64-linux-gnu/libnccl.so.2.25.1']\n") and not matches(check, "[]\n")
    assert not any("torch loads it" in item.name for item in made.verify(image(made, cuda)))


def test_msccl_is_compiled_without_debug_information(tmp_path: Path) -> None:
    """The line is that of makefiles/common.mk, with its two spaces."""
    made = recipe("msccl")
    env = image(made, recipe("cuda", provider="apt", version="12.6"), target="a100-ib", base="ubuntu:22.04")
    lines = "\n".join(steps(made, env)).splitlines()
    (edit,) = (line.strip().removesuffix(" && \\") for line in lines if line.strip().startswith("sed -i"))
    makefile = tmp_path / "makefiles" / "common.mk"
    makefile.parent.mkdir()
    makefile.write_text("CXXFLAGS  += -O0 -g -ggdb3\nCXXFLAGS  += -O3 -g\n", "utf-8")
    subprocess.run(shlex.split(edit), cwd=tmp_path, check=True)
    assert makefile.read_text("utf-8") == "CXXFLAGS  += -O0 -g -ggdb3\nCXXFLAGS += -O3 -g0\n"
