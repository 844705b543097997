"""The check that imports what recipes promise, run for real with modules made here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from envbuild.build.blocks.checks import PYTHON
from envbuild.verify.extension_modules import import_results
from envbuild.verify.results import AuditResult, Status
from tests.support.tools import require_tools

pytestmark = pytest.mark.unit

MODULE = """
#include <Python.h>
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "needs"};
PyMODINIT_FUNC PyInit_needs(void) { return PyModule_Create(&definition); }
int cuInit(int);
int use(void) { return cuInit(0); }
"""


def run(folder: Path, *modules: str) -> list[AuditResult]:
    def runner(argv: Sequence[str]) -> tuple[int, str]:
        command = [item.replace(PYTHON, sys.executable) for item in argv]
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return import_results(modules, runner)


def test_no_modules_no_check(tmp_path: Path) -> None:
    assert run(tmp_path) == []


def test_modules_that_import(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("loaded = True\n")
    (tmp_path / "one.py").write_text("import sys; assert sys.modules['torch'].loaded\n")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/two.py").write_text("")
    [found] = run(tmp_path, "one", "pack.two", "one")
    assert (found.status, found.detail, found.tier) == (Status.PASS, "imported 2 of 2", "run")


def test_one_that_does_not(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("")
    (tmp_path / "bad.py").write_text("raise ImportError('undefined symbol: _ZN3c105ErrorC1Ev')\n")
    [found] = run(tmp_path, "good", "bad", "gone")
    assert found.status == Status.FAIL
    assert "failed: bad: undefined symbol: _ZN3c105ErrorC1Ev" in found.detail
    assert "failed: gone: No module named 'gone'" in found.detail
    assert "imported 1 of 3" in found.detail


def test_one_that_ends_the_process_is_the_last_one_named(tmp_path: Path) -> None:
    (tmp_path / "aside.py").write_text("")
    (tmp_path / "crash.py").write_text("import os; os.abort()\n")
    [found] = run(tmp_path, "aside", "crash", "later")
    assert found.status == Status.FAIL
    assert "  import aside\n  import crash\n" in found.detail
    assert "import later" not in found.detail


def test_a_module_that_needs_the_driver_is_named_and_not_a_failure(tmp_path: Path) -> None:
    """A real module, linked with a libcuda.so.1 that is not there any more."""
    headers = Path(f"/usr/include/python3.{sys.version_info.minor}")
    require_tools("gcc")
    if not (headers / "Python.h").exists():
        pytest.skip(f"Python.h is not installed in {headers}")
    driver = tmp_path / "libcuda.so.1"
    build = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none"]
    stub = "int cuInit(int i) { return i; }"
    subprocess.run([*build, "-o", driver, "-Wl,-soname,libcuda.so.1"], input=stub, text=True, check=True)
    command = [*build, f"-I{headers}", "-o", tmp_path / "needs.so", "-Wl,--no-as-needed", driver]
    subprocess.run(command, input=MODULE, text=True, check=True)
    driver.unlink()
    [found] = run(tmp_path, "needs")
    assert (found.status, found.detail) == (Status.PASS, "imported 0 of 1; not without a driver: needs")
