"""The start of a command: UTF-8 in every locale, an end without a traceback while modules are imported."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.signals import reset_signals
from tests.support.tools import tool

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}  # Python takes the locale at its word


def envbuild(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    environ = {**os.environ, "COLUMNS": "120", "PYTHONPATH": str(ROOT), **env}
    command = [sys.executable, "-m", "envbuild", *arguments]
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, check=False, preexec_fn=reset_signals)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "Jürgens project"
    shutil.copytree(ROOT / "images", folder / "images")
    return folder


@pytest.fixture(scope="session")
def latin(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return a locale of one byte a sign, as `LANG=en_US` is on many clusters."""
    folder, name = tmp_path_factory.mktemp("locales"), "en_US.ISO-8859-1"
    made = [tool("localedef"), "-i", "en_US", "-f", "ISO-8859-1", str(folder / name)]
    if subprocess.run(made, capture_output=True, check=False).returncode > 1:  # 1: made, with warnings
        pytest.skip("the sources of locales, which localedef reads, are not installed (Debian: locales)")
    return {"LOCPATH": str(folder), "LC_ALL": name}


@pytest.mark.parametrize(
    "words",
    [
        ("recipes", "torch"),
        pytest.param(("--help",), marks=pytest.mark.slow_unit),
        pytest.param(("compile", "cpu-ucx"), marks=pytest.mark.slow_unit),
        pytest.param(("check", "h100-ucc"), marks=pytest.mark.slow_unit),
        pytest.param(("show", "cpu-ucx", "--json"), marks=pytest.mark.slow_unit),
    ],
    ids=" ".join,
)
def test_output_is_the_same_in_every_locale(words: tuple[str, ...], project: Path, latin: dict[str, str]) -> None:
    """A unit's key comes from texts: one that is read in another encoding would be another unit."""
    store = {"ENVBUILD_STORE": str(project / "store")}
    wanted = envbuild(*words, cwd=project, LC_ALL="C.UTF-8", **store)
    assert wanted.returncode == 0, wanted.stderr
    for locale in (ASCII, latin):
        done = envbuild(*words, cwd=project, **locale, **store)
        assert (done.returncode, done.stdout) == (0, wanted.stdout), done.stderr


def test_arguments_are_unchanged_in_every_locale(tmp_path: Path) -> None:
    done = envbuild("show", "Jürgen \udcff.sqsh", cwd=tmp_path, **ASCII)
    assert done.returncode == 2
    assert "Jürgen ".encode() in done.stderr


def test_characters_outside_the_output_encoding_are_replaced(tmp_path: Path) -> None:
    done = envbuild("--help", cwd=tmp_path, PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr
    assert b"srun --container-image=?" in done.stdout


def test_an_interrupt_while_modules_are_imported_leaves_no_traceback(tmp_path: Path) -> None:
    slow = tmp_path / "typer.py"  # replaces typer: the signal arrives in the middle of its import
    slow.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = envbuild("list", cwd=tmp_path, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


def test_a_caller_that_ignores_the_ends_of_its_children_changes_nothing(tmp_path: Path) -> None:
    """A shell after trap '' CHLD, or Perl with $SIG{CHLD} = 'IGNORE'; their programs inherit that."""
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, signal\natexit.register(lambda: print(signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL))\n"
    )
    command = f"trap '' CHLD; exec {sys.executable} -m envbuild --version"
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    done = subprocess.run(["/bin/bash", "-c", command], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "True"
