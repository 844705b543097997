"""The file of make gpu-evidence: programs of an image with their libraries, which run outside of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import PublishError
from envbuild.core.store.store import Store
from envbuild.gpu.model import NOT_RUN
from envbuild.gpu.sealed import read_document
from envbuild.launch import gpu_package
from envbuild.launch.gpu_package import (
    LeftOutError,
    library_paths,
    missing_libraries,
    package_bytes,
    read_group,
    write_package,
)
from envbuild.net.site import Site
from envbuild.spec.project import Project
from envbuild.spec.workspace import Workspace
from envbuild.squashfs.read.tree import SquashTree
from tests.support import packs
from tests.support.command import ROOT
from tests.support.gpu_bench import job
from tests.support.squashfs_image import write_image

LINKED = """\
\tlinux-vdso.so.1 (0x00007ffd)
\tlibnccl.so.2 => /opt/nccl/lib/libnccl.so.2 (0x00007f00)
\tlibcuda.so.1 => /usr/lib/x86_64-linux-gnu/libcuda.so.1 (0x00007f01)
\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f02)
\tlibmissing.so => not found
\t/lib64/ld-linux-x86-64.so.2 (0x00007f03)
"""


@pytest.mark.unit
def test_libraries_of_every_machine_are_not_packed() -> None:
    assert library_paths(LINKED) == ("/opt/nccl/lib/libnccl.so.2",)


@pytest.mark.unit
def test_libraries_that_an_image_does_not_have_are_named_but_those_of_the_driver() -> None:
    text = f"{LINKED}\tlibcuda.so.1 => not found\n\tlibnvidia-ml.so.1 => not found\n"
    assert missing_libraries(text) == ("libmissing.so",)


@pytest.mark.unit
def test_the_same_content_has_the_same_bytes() -> None:
    assert package_bytes(job(), {"a": b"1", "b": b"2"}) == package_bytes(job(), {"b": b"2", "a": b"1"})


def image(folder: Path, program: str, without: str = "\0") -> Path:
    """Write a squashfs file with a shell, ldd, and a program of this machine under the name of nvbandwidth. without:
    files of which it has none."""
    own = {path: path for path in ("/bin/sh", "/bin/bash", "/usr/bin/env", "/usr/bin/ldd", "/usr/bin/cat")}
    own["/opt/nvbandwidth/bin/nvbandwidth"] = program
    for path in list(own.values()):
        done = subprocess.run(["ldd", path], capture_output=True, text=True)
        for line in done.stdout.splitlines():
            words = [word for word in line.split() if word.startswith("/")]
            own |= {word: word for word in words}
    files = {name.lstrip("/"): Path(path).read_bytes() for name, path in own.items() if without not in name}
    files["etc/envbuild/lock.yaml"] = (ROOT / "images/h100-nccl.lock").read_bytes()
    origin = {"image": "h100-nccl", "target": "h100-ib", "order": ["nvbandwidth"], "versions": {}}
    files["etc/envbuild/resolution.json"] = json.dumps(origin).encode()
    above = sorted({str(parent) for name in files for parent in Path(name).parents} - {"."})
    members = [packs.folder(name.encode()) for name in [*above, "proc", "dev", "sys", "tmp"]]
    members += [packs.file(name.encode(), content, 0o755) for name, content in sorted(files.items())]
    path = folder / "net.sqsh"
    write_image(packs.packs(folder, members), path, epoch=0)
    return path


def workspace(folder: Path) -> Workspace:
    store = Store.open(folder / "store")
    return Workspace(Project.find(ROOT), Site(store=store.root), store, SilentReporter())


@pytest.mark.engine
def test_a_program_and_its_libraries_run_outside_of_the_image(tmp_path: Path) -> None:
    program = shutil.which("xz")
    assert program
    out = tmp_path / "checks.pyz"
    package = write_package(str(image(tmp_path, program)), out, workspace(tmp_path))
    assert package.packed == ("nvbandwidth",)
    assert package.left_out == ("all_reduce_perf: not in the image",)
    with zipfile.ZipFile(out) as archive:
        names = [name for name in archive.namelist() if name.startswith("modules/")]
        assert archive.read("modules/nvbandwidth") == Path(program).read_bytes()
    assert "modules/liblzma.so.5" in names and not any("libc.so" in name for name in names)
    done = subprocess.run([sys.executable, "-I", out.name], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found, outcomes = read_document((tmp_path / "gpu-evidence.json").read_text())
    assert (found["image"], found["place"]["outside"]) == ("h100-nccl", True)
    if not found["place"]["gpus"]:
        assert {outcome.status for outcome in outcomes} == {NOT_RUN}


@pytest.mark.engine
def test_files_that_are_too_large_together_are_not_read(tmp_path: Path) -> None:
    """A file of the image can have any size, and ldd of the image name any number of them."""
    with SquashTree(image(tmp_path, "/bin/bash")) as tree:
        size = Path("/bin/bash").stat().st_size
        paths = ("/opt/nvbandwidth/bin/nvbandwidth", "/bin/bash")
        group = read_group(tree, paths, {}, 2 * size)
        assert {name: len(content) for name, content in group.items()} == {"nvbandwidth": size, "bash": size}
        assert read_group(tree, paths, {"bash": b""}, size) == {"nvbandwidth": group["bash"]}
        for wanted, known in ((paths, {}), (("/bin/none",), {})):
            with pytest.raises(LeftOutError):
                read_group(tree, wanted, known, 2 * size - 1)


@pytest.mark.engine
def test_a_program_with_larger_files_than_memory_may_take_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_package, "UNPACKED", 100_000)
    package = write_package(str(image(tmp_path, "/bin/bash")), tmp_path / "x.pyz", workspace(tmp_path))
    assert package.packed == () and "larger than" in package.left_out[0]


@pytest.mark.engine
def test_a_program_whose_libraries_are_not_known_is_left_out(tmp_path: Path) -> None:
    program = shutil.which("xz")
    assert program
    for name, reason in (("/usr/bin/ldd", "the image has no ldd"), ("liblzma", "the image does not have liblzma")):
        package = write_package(str(image(tmp_path, program, without=name)), tmp_path / "x.pyz", workspace(tmp_path))
        assert package.packed == () and reason in package.left_out[0]


@pytest.mark.engine
def test_a_program_that_is_too_large_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_package, "LIMIT", 120_000)
    package = write_package(str(image(tmp_path, "/bin/bash")), tmp_path / "x.pyz", workspace(tmp_path))
    assert package.packed == () and package.size <= 120_000
    assert "larger than" in package.left_out[0]
    with pytest.raises(PublishError, match="cannot be written"):
        write_package(str(tmp_path / "net.sqsh"), Path("/nonexistent/x.pyz"), workspace(tmp_path))
