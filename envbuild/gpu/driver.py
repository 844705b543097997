"""The GPUs that the driver shows to this process, by libcuda alone: no other program is needed.

Functions: CUDA driver API (cuda.h). Run it in a process of its own: a sick GPU can make a call wait for ever.
"""

from __future__ import annotations

import ctypes
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

LIBRARY = "libcuda.so.1"
MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
VERSION_FILE = Path("/proc/driver/nvidia/version")
MARK = "envbuild-devices "


@dataclass(frozen=True)
class Device:
    """One GPU: its name, its compute capability ("9.0") and its bytes of memory."""

    name: str
    sm: str
    memory: int


@dataclass(frozen=True)
class Devices:
    """The GPUs, or why there are none (`fault`). `driver`: "580.95.05"; `cuda`: the newest that it can, "13.0"."""

    gpus: tuple[Device, ...] = ()
    driver: str = ""
    cuda: str = ""
    fault: str = ""


def read_devices() -> Devices:
    """Return the GPUs of this process."""
    driver = driver_version()
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        why = (
            "the kernel driver is loaded, and its libraries are not in this container" if driver else "no NVIDIA driver"
        )
        return Devices(driver=driver, fault=f"{LIBRARY} is missing: {why}")
    try:
        return query_devices(library, driver)
    except AttributeError as error:  # as in the stubs of a CUDA toolkit
        return Devices(driver=driver, fault=f"{LIBRARY} is not the one of a driver: {error}")


def query_devices(library: ctypes.CDLL, driver: str) -> Devices:
    """Return the GPUs that a library of the driver shows. Raises AttributeError for a library without its functions."""
    if code := library.cuInit(0):
        return Devices(driver=driver, fault=f"cuInit fails: {error_name(library, code)}")
    count, version = ctypes.c_int(), ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    if code := library.cuDeviceGetCount(ctypes.byref(count)):
        return Devices(driver=driver, fault=f"the driver shows no GPU: {error_name(library, code)}")
    if not count.value:
        return Devices(driver=driver, fault="the driver shows no GPU")
    cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return Devices(tuple(read_device(library, number) for number in range(count.value)), driver, cuda)


def read_device(library: ctypes.CDLL, number: int) -> Device:
    """Return one GPU."""
    name, handle = ctypes.create_string_buffer(256), ctypes.c_int()
    memory = ctypes.c_size_t()
    values = []
    library.cuDeviceGet(ctypes.byref(handle), number)
    library.cuDeviceGetName(name, len(name), handle)
    library.cuDeviceTotalMem_v2(ctypes.byref(memory), handle)
    for attribute in (MAJOR, MINOR):
        value = ctypes.c_int()
        library.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle)
        values.append(value.value)
    return Device(name.value.decode("ascii", "replace"), f"{values[0]}.{values[1]}", memory.value)


def error_name(library: ctypes.CDLL, code: int) -> str:
    """Return the name of an error: ``CUDA_ERROR_NO_DEVICE``."""
    text = ctypes.c_char_p()
    library.cuGetErrorName(code, ctypes.byref(text))
    return (text.value or b"").decode("ascii", "replace") or f"error {code}"


def driver_version() -> str:
    """Return the version of the kernel driver, or ""."""
    try:
        found = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", VERSION_FILE.read_text(errors="replace"))
    except OSError:
        return ""
    return found[1] if found else ""


def main() -> int:
    """Print the GPUs as a line of JSON; return the exit code."""
    print(MARK + json.dumps(asdict(read_devices())), flush=True)
    return 0


def parse_devices(text: str) -> Devices | None:
    """Return the GPUs that `main` printed; None if it did not get so far."""
    for line in text.splitlines():
        if line.startswith(MARK):
            try:
                value = json.loads(line[len(MARK) :])
                return Devices(**{**value, "gpus": tuple(Device(**item) for item in value["gpus"])})
            except (ValueError, TypeError, KeyError):
                return None
    return None
