"""Stubs of the driver: the functions of the headers, and error codes of a missing driver."""

from __future__ import annotations

import ctypes
import ctypes.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envbuild.build.blocks import driver_stubs
from tests.support.tools import require_tools, tool

pytestmark = pytest.mark.unit
HEADER = """
#define __CUDA_API_PTSZ(api) api ## _ptsz
#define cuMemAlloc                          cuMemAlloc_v2
#define cuMemcpyAsync                       __CUDA_API_PTSZ(cuMemcpyAsync_v2)
#define cuOldName                           cuNewName
#define CU_STREAM_LEGACY 1
typedef void (CUDA_CB *CUhostFn)(void *userData);
/* a comment that says CUresult CUDAAPI cuInComment(int); and goes on
   over lines */
// CUresult CUDAAPI cuInLineComment(int);
CUresult CUDAAPI cuInit(unsigned int Flags);
CUresult CUDAAPI cuMemAlloc(CUdeviceptr *dptr, size_t bytesize);
CUresult CUDAAPI
    cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s);
__CUDA_DEPRECATED CUresult CUDAAPI cuGetErrorString(CUresult error, const char **pStr);
static inline CUresult cuInlineOnly(const char *symbol) { return 0; }
"""
NVML = """
#define nvmlInit    nvmlInit_v2
#define nvmlGetBlacklist nvmlGetExcluded
nvmlReturn_t DECLDIR nvmlInit_v2(void);
nvmlReturn_t DECLDIR nvmlInit(void);
const DECLDIR char* nvmlErrorString(nvmlReturn_t result);
typedef struct { int x; } nvmlThing_t;
"""
FILLER = "".join(f"CUresult CUDAAPI cuFiller{number}(int x);\n" for number in range(100))
NVML_FILLER = "".join(f"nvmlReturn_t DECLDIR nvmlFiller{number}(int x);\n" for number in range(100))


def made_stubs(folder: Path, cuda: str = HEADER + FILLER, nvml: str = NVML + NVML_FILLER) -> Any:
    require_tools("gcc")
    (folder / "include").mkdir()
    (folder / "include" / "cuda.h").write_text(cuda)
    (folder / "include" / "nvml.h").write_text(nvml)
    command = [sys.executable, "-", str(folder / "include"), str(folder / "stubs")]
    return subprocess.run(command, input=driver_stubs.PROGRAM, capture_output=True, text=True, check=False)


def defined(path: Path) -> set[str]:
    command = [tool("nm"), "-D", "--defined-only", path]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {text.split()[-1] for text in output.splitlines()}


def test_stubs_define_exactly_the_functions_of_the_headers(tmp_path: Path) -> None:
    run = made_stubs(tmp_path)
    assert run.returncode == 0, run.stderr
    names = {name for name in defined(tmp_path / "stubs" / "libcuda.so") if "Filler" not in name}
    plain = {"cuInit", "cuMemAlloc", "cuMemcpyAsync", "cuGetErrorString"}
    assert names == plain | {"cuMemAlloc_v2", "cuMemcpyAsync_v2", "cuMemcpyAsync_v2_ptsz"}
    names = {name for name in defined(tmp_path / "stubs" / "libnvidia-ml.so") if "Filler" not in name}
    assert names == {"nvmlInit", "nvmlInit_v2", "nvmlErrorString"}


def test_stubs_return_the_error_of_a_missing_driver(tmp_path: Path) -> None:
    assert made_stubs(tmp_path).returncode == 0
    driver = tmp_path / "stubs" / "driver"
    assert {path.name: path.readlink().as_posix() for path in driver.iterdir()} == {
        "libcuda.so.1": "../libcuda.so",
        "libnvidia-ml.so.1": "../libnvidia-ml.so",
    }
    cuda, nvml = ctypes.CDLL(str(driver / "libcuda.so.1")), ctypes.CDLL(str(driver / "libnvidia-ml.so.1"))
    assert (cuda.cuInit(0), cuda.cuMemcpyAsync_v2_ptsz(), nvml.nvmlInit_v2()) == (34, 34, 12)
    # callers print this for any code: a text, not arbitrary memory
    text = ctypes.c_char_p()
    assert cuda.cuGetErrorString(34, ctypes.byref(text)) == 34
    assert text.value and b"driver" in text.value
    nvml.nvmlErrorString.restype = ctypes.c_char_p
    assert nvml.nvmlErrorString(12) == text.value


@pytest.mark.slow_unit
def test_stubs_are_reproducible_and_have_the_sonames_of_the_driver(tmp_path: Path) -> None:
    contents = []
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        assert made_stubs(tmp_path / str(number)).returncode == 0
        contents.append([path.read_bytes() for path in sorted((tmp_path / str(number) / "stubs").glob("*.so"))])
    assert contents[0] == contents[1]
    assert [name in data for name, data in zip((b"libcuda.so.1", b"libnvidia-ml.so.1"), contents[0], strict=True)] == [
        True,
        True,
    ]


def test_a_header_without_functions_is_an_error(tmp_path: Path) -> None:
    run = made_stubs(tmp_path, cuda=HEADER)
    assert run.returncode == 1
    assert "cuda.h declares" in run.stderr
