"""torch's process group "ucc" as a plugin: which torch it fits, and how its sources are edited."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from envbuild.build.blocks import checks
from tests.support.recipes import ROOT, Named, commands, image, recipe

pytestmark = pytest.mark.unit
DATA = ROOT / "recipes" / "data" / "torch_ucc"


@pytest.mark.parametrize("version", ["", "2.15", "2.15.0", "2"])
def test_torch_ucc_beside_the_torch_it_was_fitted_to(version: str) -> None:
    made = recipe("torch-ucc")
    env = image(recipe("torch", **({"version": version} if version else {})), Named("ucc"), made)
    assert made.refusals(env) == ()
    assert made.runtime(env).core == ("torch==2.15.0",)
    assert made.matrix(env) == {"torch-ucc": "plugin", "torch": "2.15"}


def test_torch_ucc_for_torch_2_6() -> None:
    """Debian's source is of this version: its methods keep their names."""
    made = recipe("torch-ucc", version="2.6.0")
    env = image(recipe("torch", version="2.6.0"), Named("ucc"), made)
    assert made.refusals(env) == ()
    assert made.runtime(env).core == ("torch==2.6.0",)
    assert made.matrix(env) == {"torch-ucc": "plugin", "torch": "2.6"}
    text = commands(made, env)
    assert "_reduce_scatter_base(output" in text and "reduce_scatter_single" not in text.partition("edits.py")[0]
    assert "orig.tar.xz . tag" in text
    newest = recipe("torch-ucc")
    assert "orig.tar.xz . debian" in commands(newest, image(recipe("torch"), Named("ucc"), newest))


def test_torch_ucc_names_the_version_for_another_torch() -> None:
    made = recipe("torch-ucc")
    (refusal,) = made.refusals(image(recipe("torch", version="2.6.0"), Named("ucc"), made))
    assert "it is for torch 2.15.0, and the image has torch 2.6.0" in str(refusal)
    assert refusal.hint == 'write torch-ucc: "2.6.0"'


@pytest.mark.parametrize("version", ["2.14", "2.14.1", "2.1", "2.15.1"])
def test_torch_ucc_refuses_a_torch_that_was_not_tried(version: str) -> None:
    made = recipe("torch-ucc")
    (refusal,) = map(str, made.refusals(image(recipe("torch", version=version), Named("ucc"), made)))
    assert f"torch {version} was not tested" in refusal


def test_torch_ucc_refuses_a_base_that_it_does_not_support() -> None:
    made = recipe("torch-ucc", version="2.14.0")
    env = image(recipe("torch", provider="base"), Named("ucc", builds=False), made)
    assert [refusal.because.partition(" ")[0] for refusal in made.refusals(env)] == ["its", "torch", "it"]


def test_torch_ucc_takes_three_files_of_a_pinned_source() -> None:
    made = recipe("torch-ucc")
    sources = made.sources(image(recipe("torch"), Named("ucc"), made))
    assert sources.gives == ("envbuild-torch-ucc==2.15.0",)
    (archive,) = sources.archives
    assert archive.origin.startswith("debian:pool/main/p/pytorch/") and archive.sha256.startswith("099a9601")
    other = recipe("torch-ucc", source="tag")
    assert other.sources(image(recipe("torch"), Named("ucc"), other)).archives[0].origin.endswith("@v2.15.0")


def test_torch_ucc_is_for_cuda_tensors_where_the_image_has_cuda() -> None:
    made, ucc, torch = recipe("torch-ucc"), Named("ucc"), recipe("torch")
    with_cuda = image(torch, ucc, made, recipe("cuda", version="13.2"))
    without = image(torch, ucc, made, target="cpu")
    setting = 'export TORCH_UCC_CUDA="1"'
    assert setting in commands(made, with_cuda) and setting not in commands(made, without)
    assert [check.tier for check in made.verify(without)] == ["run"] * 3
    assert [check.tier for check in made.verify(with_cuda)] == ["run"] * 4 + ["gpu"]


def test_the_build_writes_the_files_that_are_in_the_tree(tmp_path: Path) -> None:
    """Every part goes through printf and a shell, and must come out as it was."""
    made = recipe("torch-ucc")
    text = commands(made, image(recipe("torch"), Named("ucc"), made))
    parts = [path for path in DATA.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    for part in parts:
        name = part.relative_to(DATA).as_posix()
        assert (f"> {name}" in text) is (name != "compare.py")
        command = checks.written(str(tmp_path / part.name), part.read_text())
        subprocess.run(["/bin/sh", "-c", command], check=True)
        assert (tmp_path / part.name).read_bytes() == part.read_bytes()


GROUP = """#include <ATen/cuda/nvrtc_stub/ATenNVRTC.h>
#include <torch/csrc/distributed/c10d/UCCTracing.hpp>
#include <torch/csrc/distributed/c10d/UCCUtils.hpp>
  CUcontext pctx = nullptr;
  cuCtxSetCurrent(pctx);
  }
ProcessGroupUCC::_allgather_base(
ProcessGroupUCC::_reduce_scatter_base(
ProcessGroupUCC::alltoall_base(
void ProcessGroupUCC::setSequenceNumberForGroup() {}
"""
OTHERS = "#include <torch/csrc/distributed/c10d/UCCTracing.hpp>\n#include <torch/csrc/distributed/c10d/UCCUtils.hpp>\n"
FILES = {"ProcessGroupUCC.cpp": GROUP, "UCCUtils.cpp": OTHERS, "UCCTracing.cpp": OTHERS}


def edits(folder: Path, files: dict[str, str], source: str = "debian") -> subprocess.CompletedProcess[str]:
    """Run edits.py on a tarball of `files` (made-up sources with what the edits look for)."""
    with tarfile.open(folder / "source.tar.xz", "w:xz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"pytorch-2/torch/csrc/distributed/c10d/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    command = [sys.executable, DATA / "edits.py", folder / "source.tar.xz", folder, source]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_edits(tmp_path: Path) -> None:
    assert edits(tmp_path, FILES).returncode == 0
    text = (tmp_path / "ProcessGroupUCC.cpp").read_text()
    assert text.startswith('#include "compat.h"\n#include <torch/csrc/distributed/c10d/ucc/UCCTracing.hpp>\n')
    for word in ("all_gather_single", "reduce_scatter_single", "all_to_all_single", "make_context_current"):
        assert text.count(word) == 1
    for word in ("_base(", "setSequenceNumberForGroup", "nvrtc", "CUcontext"):
        assert word not in text


@pytest.mark.parametrize(
    ("name", "old", "new", "found"),
    [
        ("ProcessGroupUCC.cpp", "alltoall_base", "all_to_all_single", 0),
        ("ProcessGroupUCC.cpp", "alltoall_base(", "alltoall_base(\nProcessGroupUCC::alltoall_base(", 2),
        ("UCCUtils.cpp", "c10d/UCCUtils", "c10d/ucc/UCCUtils", 0),
        ("ProcessGroupUCC.cpp", "cuCtxSetCurrent", "cuCtxPushCurrent", 0),
    ],
)
def test_an_edit_that_does_not_match_once_stops_the_build(
    name: str, old: str, new: str, found: int, tmp_path: Path
) -> None:
    done = edits(tmp_path, {**FILES, name: FILES[name].replace(old, new)})
    assert done.returncode == 1
    assert done.stderr.startswith(f"{name}: expected exactly one match of") and f"found {found}" in done.stderr


def test_a_source_without_the_files(tmp_path: Path) -> None:
    done = edits(tmp_path, {"UCCUtils.cpp": OTHERS})
    assert done.returncode == 1
    assert "no ProcessGroupUCC.cpp and no UCCTracing.cpp" in done.stderr


def test_the_sources_of_a_tag_need_only_files_outside_of_wheels(tmp_path: Path) -> None:
    assert edits(tmp_path, FILES, "tag").returncode == 0
    text = (tmp_path / "ProcessGroupUCC.cpp").read_text()
    assert '#include "compat.h"' in text and "alltoall_base" in text


def test_programs_of_the_image_are_python() -> None:
    for path in DATA.rglob("*.py"):
        compile(path.read_text(), path.name, "exec")
