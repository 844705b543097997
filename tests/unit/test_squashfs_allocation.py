"""Packing does not give its buffers back to the kernel for every piece."""

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit

PIECES = 96
PACKING = f"""
import resource, sys
from pathlib import Path
from envbuild.oci.member import Kind, Member
from envbuild.squashfs.pack import PackWriter

def faults(path, pieces):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    with PackWriter(path, jobs=2, level=1) as writer:
        for number in range(pieces):
            writer.begin(Member(b"%d" % number, Kind.FILE, 0o644, size=1 << 20))
            writer.data(bytes([number + 1]) * (1 << 20))
            writer.end()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults(Path(sys.argv[1], "first"), 16)
print(faults(Path(sys.argv[1], "second"), {PIECES}))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_buffers_are_used_again(tmp_path):
    """In a process of its own: what others left free there would be used, too."""
    told = subprocess.run(
        [sys.executable, "-c", PACKING, str(tmp_path)], check=True, capture_output=True, text=True, timeout=120
    )
    pages = PIECES << 8  # of 4 KiB
    assert int(told.stdout) < pages // 4


def test_another_libc_is_left_alone(monkeypatch):
    from envbuild.squashfs import allocation

    monkeypatch.setattr(allocation.ctypes, "CDLL", lambda name: object())
    allocation.keep_freed.__wrapped__()
