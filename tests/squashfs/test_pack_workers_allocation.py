"""Packing does not give its buffers back to the kernel for every piece."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from envbuild.squashfs.pack import workers
from envbuild.squashfs.pack.writer import PackWriter

pytestmark = pytest.mark.unit

ROUNDS, PIECES = 8, 8
# Takes and frees pieces of 1 MiB again and again, and prints how many pages the kernel allocated for it.
PROGRAM = f"""
import ctypes, resource, sys
from envbuild.squashfs.pack.workers import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def take_and_free():
    [bytes([number + 1]) * (1 << 20) for number in range({PIECES})]

ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: a page is a page, whatever this machine prefers
if sys.argv[1] == "kept":
    keep_freed_memory()
take_and_free()
before = faults()
for _ in range({ROUNDS}):
    take_and_free()
print(faults() - before)
"""


def pages(how: str) -> int:
    """Return the pages of a separate process: free memory of this one would be used, too."""
    command = [sys.executable, "-c", PROGRAM, how]
    return int(run_plainly(command))


def run_plainly(command: list[str]) -> str:
    """Return the output of a program with the default malloc: the environment of some machines sets another."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=plain).stdout


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_buffers_are_used_again() -> None:
    """Pages may have 4 KiB or 64."""
    assert pages("kept") < ROUNDS * PIECES * (1 << 20) // resource.getpagesize() // 16 < pages("given back") // 2


def test_packing_sets_the_allocation_parameters(tmp_path: Path) -> None:
    workers.keep_freed_memory.cache_clear()
    with PackWriter(tmp_path / "pack", jobs=1):
        pass
    assert workers.keep_freed_memory.cache_info().misses == 1


# How many heaps malloc has when eight threads took some memory (malloc_info(3)).
THREADS = """
import ctypes, sys, threading
from pathlib import Path

def use():
    bytearray(1 << 20)
    barrier.wait()

if sys.argv[1] == "workers":
    from envbuild.squashfs.pack.workers import Workers

    Workers(1)
barrier = threading.Barrier(9)
for _ in range(8):
    threading.Thread(target=use, daemon=True).start()
barrier.wait()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
print(Path(sys.argv[2]).read_text().count("<heap nr"))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_info is glibc's")
def test_threads_share_freed_memory(tmp_path: Path) -> None:
    """Each arena of glibc keeps free memory at its end, and malloc_trim returns that of the first one alone."""

    def heaps(how: str) -> int:
        command = [sys.executable, "-c", THREADS, how, str(tmp_path / "heaps")]
        return int(run_plainly(command))

    assert heaps("workers") <= 2 < heaps("alone")


FRAGMENTED_HEAP = """
import resource
from envbuild.squashfs.pack.workers import trim_heap, keep_freed_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

keep_freed_memory()
buffers = [bytes([number]) * (1 << 20 if number % 2 else 1 << 18) for number in range(80)]
buffers = buffers[::2]  # what is between them (too large for older holes) is free, but not at the end
before = resident()
trim_heap()
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is glibc's")
def test_freed_memory_is_returned_at_the_end() -> None:
    assert int(run_plainly([sys.executable, "-c", FRAGMENTED_HEAP])) > 30 << 20


def test_another_libc_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.ctypes, "CDLL", lambda name: object())
    workers.keep_freed_memory.__wrapped__()
    workers.trim_heap()
