"""The query of the driver, with a library that has the functions of libcuda and as many GPUs as a test wants."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from envbuild.gpu import driver
from envbuild.gpu.driver import Device, read_devices
from tests.support.tools import tool

pytestmark = pytest.mark.unit

# Signatures: cuda.h of the CUDA driver API. 75 and 76 are the attributes of the compute capability.
SOURCE = """
#include <string.h>
#include <stddef.h>
int cuInit(unsigned flags) { return INIT; }
int cuDriverGetVersion(int *version) { *version = 13020; return 0; }
int cuDeviceGetCount(int *count) { *count = COUNT; return COUNT < 0 ? 100 : 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetName(char *name, int length, int device)
{ strncpy(name, device ? "second" : "first", length); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 85UL << 30; return 0; }
int cuDeviceGetAttribute(int *value, int which, int device)
{ *value = which == 75 ? 9 : which == 76 ? 1 : -1; return 0; }
int cuGetErrorName(int code, const char **text) { *text = code == 100 ? "CUDA_ERROR_NO_DEVICE" : NULL; return 0; }
"""


def use_library(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int, init: int = 0) -> None:
    """Compile the library, and let the query load it."""
    path = folder / f"libcuda-{count}-{init}.so"
    (folder / "cuda.c").write_text(SOURCE)
    words = [tool("gcc"), "-shared", "-fPIC", f"-DCOUNT={count}", f"-DINIT={init}", "-o", path, folder / "cuda.c"]
    subprocess.run(words, check=True)
    monkeypatch.setattr(driver, "LIBRARY", str(path))


def test_gpus_are_read_with_their_names_and_compute_capability(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_library(tmp_path, monkeypatch, 2)
    found = read_devices()
    assert found.gpus == (Device("first", "9.1", 85 << 30), Device("second", "9.1", 85 << 30))
    assert (found.cuda, found.fault) == ("13.2", "")


@pytest.mark.parametrize(
    ("count", "init", "fault"),
    [
        (0, 0, "the driver shows no GPU"),
        (-1, 0, "the driver shows no GPU: CUDA_ERROR_NO_DEVICE"),
        (2, 100, "cuInit fails: CUDA_ERROR_NO_DEVICE"),
        (2, 999, "cuInit fails: error 999"),
    ],
)
def test_a_driver_without_gpus_states_why(
    count: int, init: int, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_library(tmp_path, monkeypatch, count, init)
    found = read_devices()
    assert (found.gpus, found.fault) == ((), fault)
