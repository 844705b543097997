"""facts/derived/nvcc.yaml from wheels with a program that answers as ptxas does."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from envbuild.core.errors import InputError
from envbuild.matrix.collect import nvcc
from envbuild.matrix.collect.fact_writer import Derived
from envbuild.matrix.collect.nvcc import CompilerLimits, limits_of, targets_of
from tests.support.wheel_server import context, index_site, make_wheel

pytestmark = pytest.mark.unit

# ptxas --help of CUDA 12.9, in part
HELP = """
--generate-line-info                                (-lineinfo)
        Generate line-number information for device code, as sm_10 never did.

--gpu-name <gpu name>                               (-arch)
        Specify name of NVIDIA GPU to generate code for. PTX for .target sm_XY can be
        compiled to all GPU targets sm_MN, sm_MNa, SM_MNf where MN >= XY.
        Allowed values for this option:  'compute_100','compute_90','sm_100','sm_100a',
        'sm_100f','sm_50','sm_90','sm_90a'.
        Default value:  'sm_52'.

--help                                              (-h)
        Print this help information on this tool, as for 'sm_20'.
"""
# crt/host_config.h of CUDA 12.8, in part
HEADER = """
#if (__GRCO_CLANG_COMPILER__ == 1) && ((__clang_major__ < 16) || (__clang_major__ > 19))
#error -- unsupported Grace clang version! The version must be 16.x to 19.x. The nvcc flag ...
#endif
#if defined(__GNUC__)
#if __GNUC__ > 14
#error -- unsupported GNU version! gcc versions later than 14 are not supported! The nvcc flag ...
#endif /* __GNUC__ > 14 */
#if (__clang_major__ >= 20) || (__clang_major__ < 3) || ((__clang_major__ == 3) &&  (__clang_minor__ < 3))
#error -- unsupported HOS clang version! The version must be must be less than 20 and greater than 3.2 . The nvcc ...
#error -- unsupported clang version! clang version must be less than 19 and greater than 3.2 . The nvcc flag ...
#endif
"""


def wheel(
    folder: Path, package: str, version: str, *, program: str = "", header: str = "", tag: str = "x86_64"
) -> Path:
    root = "nvidia/cuda_nvcc" if package.endswith(("11", "12")) else "nvidia/cu13"
    members = {f"{root}/bin/ptxas": program.encode()} if program else {}
    members |= {f"{root}/include/crt/host_config.h": header.encode()} if header else {}
    return make_wheel(folder, f"{package}-{version}-py3-none-manylinux2014_{tag}.whl", members=members)


def answering(text: str) -> str:
    """Write a program that prints `text` as its help, with nothing else in its environment."""
    return f'#!/bin/sh\n[ "$1" = --help ] && [ -z "$HOME$SECRET" ] && cat <<"END"\n{text}\nEND\n'


TARGETS = ("compute_90", "compute_100", "sm_50", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f")


def collect(tmp_path: Path, *wheels: Path) -> Derived:
    return nvcc.collect(context(index_site(tmp_path / "simple", list(wheels))))["nvcc"]


def test_targets_and_limits_of_the_newest_patches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "not for ptxas")
    old, new = "nvidia_cuda_nvcc_cu12", "nvidia_cuda_nvcc"
    derived = collect(
        tmp_path,
        wheel(tmp_path, old, "12.8.61", program=answering("of an older patch"), header="of an older patch"),
        wheel(tmp_path, old, "12.8.93", program=answering(HELP), header=HEADER),
        wheel(tmp_path, old, "12.8.99", program=answering("of another machine"), header="x", tag="aarch64"),
        wheel(tmp_path, old, "12.3.107", program=answering(HELP), header=HEADER),
        wheel(tmp_path, new, "13.0.88", program=answering(HELP.replace("'sm_50',", ""))),
        wheel(tmp_path, "nvidia_cuda_crt", "13.0.88", header=HEADER.replace("14", "15")),
    )
    facts = {fact.id: fact for fact in derived.facts}
    targets = {row.when["cuda"]: row.then["sm"] for row in facts["cuda.ptxas-targets"].rows}
    assert list(targets) == ["13.0", "12.8", "12.3"]
    assert targets["12.8"] == {"cubins": ["50", "90", "90a", "100", "100a", "100f"]}
    assert targets["13.0"] == {"cubins": ["90", "90a", "100", "100a", "100f"]}
    code = {row.when["cuda"]: row.then["code"] for row in facts["cuda.code-targets"].rows}
    assert code["12.8"] == list(TARGETS)
    assert derived.components["code"]["values"] == list(TARGETS)
    # 12.3 is disputed: facts/gcc.yaml has the bound of torch beside that of the header
    gcc = {row.when["cuda"]: row.then["gcc"] for row in facts["cuda.gcc-max"].rows}
    assert gcc == {"13.0": "<=15", "12.8": "<=14"}
    clang = {row.when["cuda"]: row.then["clang"] for row in facts["cuda.clang-max"].rows}
    assert clang == {"13.0": "<20", "12.8": "<20", "12.3": "<20"}
    assert "12.8.93" in facts["cuda.gcc-max"].rows[1].note
    assert derived.components["cuda"]["values"] == ["13.0", "12.8", "12.3"]


def test_a_program_that_does_not_run_here(tmp_path: Path) -> None:
    for program in ("\x7fELF of another machine", "#!/bin/sh\nexit 3\n"):
        with pytest.raises(InputError, match=r"ptxas of nvidia_cuda_nvcc_cu12-12.8.93.* does not run here") as caught:
            collect(tmp_path / str(len(program)), wheel(tmp_path, "nvidia_cuda_nvcc_cu12", "12.8.93", program=program))
        assert "x86_64 machine" in caught.value.hint


def test_a_wheel_without_ptxas(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="0 of its members are"):
        collect(tmp_path, wheel(tmp_path, "nvidia_cuda_nvcc_cu12", "12.8.93", header=HEADER))


def test_targets() -> None:
    assert targets_of(HELP) == TARGETS
    assert targets_of("") == ()


def test_limits() -> None:
    assert limits_of(HEADER, "x") == CompilerLimits("14", "20")
    with pytest.raises(InputError, match="does not state its limits"):
        limits_of(HEADER.replace("GNU version", "GCC version"), "x")


def test_empty_lines_of_a_header_take_no_time() -> None:
    """20 million of them, in a wheel of 34 kB, would have taken ten days."""
    header = (
        "#error -- unsupported GNU version! gcc versions later than 13 are not supported\n"
        "#error -- unsupported clang version! clang version must be less than 18 \n"
    )
    began = time.process_time()
    assert limits_of(header + "\n" * 1_000_000, "x") == CompilerLimits("13", "18")
    assert time.process_time() - began < 10


def test_a_header_of_more_than_a_megabyte_is_not_read(tmp_path: Path) -> None:
    large = wheel(tmp_path, "nvidia_cuda_nvcc_cu12", "12.8.93", program=answering(HELP), header="\n" * (1 << 21))
    with pytest.raises(InputError, match="more than 1048576"):
        collect(tmp_path, large)
