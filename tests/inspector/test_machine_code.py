"""Instructions of the files that were compiled for an image: of those alone, and of each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.inspector import elf, x86_isa
from envbuild.inspector.dynamic_loader import Loader
from envbuild.inspector.elf_symbols import SECTIONS
from envbuild.inspector.file_walk import ImageFiles
from envbuild.inspector.link_check import Linker
from envbuild.inspector.machine_code import scan_compiled
from tests.support.binaries import make_elf

pytestmark = pytest.mark.unit

VZEROUPPER = b"\xc5\xf8\x77\xc3"


def found(root: Path, *names: str, **options: object) -> tuple[ImageFiles, Linker]:
    """Return the walk over files with one function that needs a newer CPU."""
    tree = ImageFiles()
    for name in names:
        data = make_elf(sections={".text": VZEROUPPER}, unwind=[0], **options)  # type: ignore[arg-type]
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        tree.elves[str(path)] = elf.parse(data, SECTIONS | x86_isa.SECTIONS)
    loader = Loader(tree.elves, {})
    return tree, Linker(loader, loader.resolve(), [], {}, [], "")


def test_files_of_named_folders_and_distributions_are_scanned(tmp_path: Path) -> None:
    tree, linker = found(tmp_path, "site/a.so", "site/b.so", "opt/ucx/c.so", "opt/ucx2/d.so", "e.so")
    owners = {str(tmp_path / "site/a.so"): "numpy", str(tmp_path / "site/b.so"): "Flash_Attn"}
    made = {"folders": [str(tmp_path / "opt/ucx")], "dists": ["flash-attn"]}
    result = scan_compiled(tree, owners, made, linker)
    assert sorted(result) == [str(tmp_path / "opt/ucx/c.so"), str(tmp_path / "site/b.so")]
    assert all("x86-64-v3" in seen and "asks" not in seen for seen in result.values())
    assert scan_compiled(tree, owners, {"folders": [], "dists": []}, linker) == {}


def test_a_function_of_another_file_that_detects_the_cpu_is_named(tmp_path: Path) -> None:
    tree, linker = found(tmp_path, "opt/x.so", wants=["puts", "ncclCpuAffinity", "__cpu_model", "getauxval"])
    result = scan_compiled(tree, {}, {"folders": [str(tmp_path / "opt")], "dists": []}, linker)
    assert result[str(tmp_path / "opt/x.so")]["asks"] == "__cpu_model"


def test_a_file_that_is_gone_is_damaged_and_the_others_are_scanned(tmp_path: Path) -> None:
    tree, linker = found(tmp_path, "opt/a.so", "opt/b.so")
    (tmp_path / "opt/a.so").unlink()
    result = scan_compiled(tree, {}, {"folders": [str(tmp_path / "opt")], "dists": []}, linker)
    assert list(tree.damaged) == [str(tmp_path / "opt/a.so")]
    assert "x86-64-v3" in result[str(tmp_path / "opt/b.so")]
