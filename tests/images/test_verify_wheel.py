"""Symbols of a wheel of the package index, against this machine's interpreter and C library."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from envbuild.inspector import elf
from envbuild.inspector.dynamic_loader import Loader
from envbuild.inspector.elf_symbols import SECTIONS
from envbuild.inspector.link_check import Linker
from tests.support.index_wheels import installed

pytestmark = [pytest.mark.images, pytest.mark.slow]


def libraries(path: str) -> dict[str, str]:
    """Return name → file of what ldd finds for a program or module (the loader itself has no arrow)."""
    run = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
    found = re.findall(r"(?:(\S+) => |^\s)(/\S+)", run.stdout, re.MULTILINE)
    return {name or Path(file).name: file for name, file in found}


def test_numpy_links_with_its_own_blas_only(tmp_path: Path) -> None:
    folder = installed(tmp_path, "numpy")
    python = os.path.realpath(sys.executable)
    modules = sorted(str(path) for path in folder.rglob("*.so*") if path.is_file())
    named = {name: os.path.realpath(file) for path in [python, *modules] for name, file in libraries(path).items()}
    files = {python, *modules, *named.values()}
    elves = {path: elf.parse(Path(path).read_bytes(), SECTIONS) for path in files}
    system = [(name, path) for name, path in named.items() if not path.startswith(str(folder))]

    def linker() -> Linker:
        loader = Loader(elves, {}, system, (), [str(folder)])
        return Linker(loader, loader.resolve(), [str(folder)], {}, [], python)

    result = linker().check(modules)
    assert (result["not_found"], result["skipped"]) == ({}, [])
    assert (result["files"], linker().versions(modules)["not_found"]) == (len(modules), {})
    assert result["symbols"] > 2000
    blas = next(path for path in modules if "openblas" in path and "libs" in path)
    other = next(path for path in modules if "gfortran" in path or "quadmath" in path)
    Path(blas).write_bytes(Path(other).read_bytes())  # the right name, and no symbol that is needed
    elves[blas] = elf.parse(Path(blas).read_bytes(), SECTIONS)
    unresolved = linker().check(modules)["not_found"]
    assert any("_multiarray_umath" in path and "cblas" in item["names"][0] for path, item in unresolved.items())
