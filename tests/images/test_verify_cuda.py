"""Fat binary headers as read here, against NVIDIA's own reader, on a library of the package index."""

from __future__ import annotations

import mmap
import re
import subprocess
from pathlib import Path

import pytest

from envbuild.inspector import elf, fatbin, report
from envbuild.inspector.file_walk import ImageFiles
from envbuild.verify.cuda import reader_result
from envbuild.verify.results import Status
from tests.support.index_wheels import installed

pytestmark = [pytest.mark.images, pytest.mark.slow]


def test_nccl_has_the_cubins_that_cuobjdump_lists(tmp_path: Path) -> None:
    library = installed(tmp_path, "nvidia-nccl-cu13==2.30.7") / "nvidia/nccl/lib/libnccl.so.2"
    program = installed(tmp_path, "nvidia-cuda-cuobjdump==13.2.86") / "nvidia/cu13/bin/cuobjdump"
    program.chmod(0o755)
    listed: dict[str, int] = {}
    for option, word in (("--list-elf", "sm"), ("--list-ptx", "compute")):
        run = subprocess.run([str(program), option, str(library)], capture_output=True, text=True, check=True)
        for arch in re.findall(r"\.sm_([0-9]+[af]?)\.(?:cubin|ptx)", run.stdout):
            listed[f"{word}_{arch}"] = listed.get(f"{word}_{arch}", 0) + 1
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        read: dict[str, int] = {}
        for arch, count in fatbin.count_architectures(data, elf.parse(data, fatbin.SECTIONS).sections).items():
            read[arch.rstrip("f")] = read.get(arch.rstrip("f"), 0) + count  # cuobjdump writes sm_100 for sm_100f
    assert read == listed
    assert {arch for arch in read if arch.startswith("sm_")} == {
        "sm_75",
        "sm_80",
        "sm_90",
        "sm_100",
        "sm_110",
        "sm_120",
    }


def test_nvshmem_has_the_ptx_of_objects_that_cuobjdump_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code for the driver has no PTX; each of its objects has."""
    library = installed(tmp_path, "nvidia-nvshmem-cu13==3.4.5") / "nvidia/nvshmem/lib/libnvshmem_host.so.3"
    program = installed(tmp_path, "nvidia-cuda-cuobjdump==13.2.86") / "nvidia/cu13/bin/cuobjdump"
    program.chmod(0o755)
    monkeypatch.setattr(report, "CUOBJDUMP", (str(program),))
    found, path = ImageFiles(), str(library)
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found.cuda[path] = fatbin.count_architectures(data, elf.parse(data, fatbin.SECTIONS).sections)
    found.sizes[path] = library.stat().st_size
    assert "compute_120" in found.cuda[path]
    listed = report.run_cuobjdump(found)
    assert listed and "compute_120" not in listed[path]["code"]
    assert reader_result(found.cuda, listed).status is Status.PASS
