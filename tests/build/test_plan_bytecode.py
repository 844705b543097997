"""Bytecode of the venv: the command that a unit runs, run here on folders of this test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from envbuild.build.plan.bytecode import compile_command
from envbuild.inspector import pyc

pytestmark = pytest.mark.unit

SETS = "def f(x):\n    return x in {'" + "', '".join(f"name{number}" for number in range(40)) + "'}\n"


def make_packages(folder: Path) -> Path:
    """Return a folder with modules, in subfolders, too, and one that does not compile."""
    for name in ("a", "b/inner", "c"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"NAME = '{name}'\n" + SETS)
    (folder / "c" / "template.py").write_text("class {{ name }}:\n")
    return folder


def compile_here(folder: Path, seed: str = "random") -> dict[str, bytes]:
    """Run the command, and return the bytes of each .pyc by its path."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": seed}
    done = subprocess.run(
        ["sh", "-c", compile_command(sys.executable, str(folder))], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout + done.stderr == ""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.pyc"))}


def test_each_module_that_compiles_has_bytecode_of_its_source(tmp_path: Path) -> None:
    folder = make_packages(tmp_path)
    found = compile_here(folder)
    assert [path.split("/__pycache__")[0] for path in found] == ["a", "b/inner", "c"]
    paths = [str(folder / path) for path in found]
    assert pyc.check(paths) == {"hash": 3, "timestamp": 0, "orphan": 0, "stale": [], "damaged": []}


def test_the_bytes_are_those_of_the_sources_alone(tmp_path: Path) -> None:
    """Neither times of files nor the hash seed of the caller are in them."""
    folder = make_packages(tmp_path)
    first = compile_here(folder, "1")
    for path in folder.rglob("*.pyc"):
        path.unlink()
    for path in folder.rglob("*.py"):
        os.utime(path, (1, 1))
    assert compile_here(folder, "2") == first


def test_bytecode_of_a_unit_below_is_not_written_again(tmp_path: Path) -> None:
    folder = make_packages(tmp_path)
    compile_here(folder)
    (old,) = (folder / "a" / "__pycache__").iterdir()
    before = old.stat()
    (folder / "new.py").write_text("x = 1\n")
    assert any(path.startswith("__pycache__/new.") for path in compile_here(folder))
    assert (old.stat().st_ino, old.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """Without one, a full disk changed the layer."""
    folder = make_packages(tmp_path)
    (folder / "a" / "__pycache__").write_text("")
    with pytest.raises(subprocess.CalledProcessError):
        compile_here(folder)


def test_an_edit_takes_effect(tmp_path: Path) -> None:
    """Users edit a module in a writable container: of the same size and time, too."""
    folder = make_packages(tmp_path)
    compile_here(folder)
    source = folder / "a" / "__init__.py"
    status = source.stat()
    source.write_text(source.read_text().replace("'a'", "'z'"))
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
    output = subprocess.run(
        [sys.executable, "-B", "-c", "import a; print(a.NAME)"], cwd=folder, capture_output=True, text=True, check=True
    )
    assert output.stdout == "z\n"
    assert pyc.check(map(str, folder.rglob("*.pyc")))["stale"] == [str(p) for p in (folder / "a").rglob("*.pyc")]


@pytest.mark.parametrize("flags", [1, 3])
def test_a_hash_of_another_python_is_not_compared(tmp_path: Path, flags: int) -> None:
    folder = make_packages(tmp_path)
    compile_here(folder)
    (path,) = (folder / "a").rglob("*.pyc")
    content = path.read_bytes()
    wrong = bytes(8)
    path.write_bytes(content[:4] + flags.to_bytes(4, "little") + wrong + content[16:])
    assert pyc.check([str(path)])["stale"] == [str(path)]
    path.write_bytes(b"\x00\x00\r\n" + flags.to_bytes(4, "little") + wrong + content[16:])
    assert pyc.check([str(path)])["stale"] == []
