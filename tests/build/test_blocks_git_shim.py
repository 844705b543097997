"""A program git that knows one revision, for builds that ask which commit they are."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from envbuild.build.blocks.blocks import python_wheel
from envbuild.build.blocks.git_shim import git_that_knows, git_without_history
from envbuild.build.blocks.hpccm import hpccm_target, steps
from envbuild.spec.recipe import Git

pytestmark = pytest.mark.unit


def test_a_git_that_knows_one_revision(tmp_path: Path) -> None:
    written, path = git_that_knows(Git("ucx", "github:openucx/ucx", "d8e50df6651b9ea5b76f23aee0aefbf053a4137a"))
    folder = path.removesuffix(":$PATH")
    run = " && ".join(text.replace(folder, str(tmp_path / "bin")) for text in written)
    assert subprocess.run(["/bin/sh", "-c", run], check=False).returncode == 0
    for words, answer in (("rev-parse --short=7 HEAD", "d8e50df\n"), ("rev-parse --short HEAD", "d8e50df\n")):
        result = subprocess.run([tmp_path / "bin" / "git", *words.split()], capture_output=True, text=True, check=False)
        assert (result.returncode, result.stdout) == (0, answer)
    for words in ("symbolic-ref --quiet HEAD", "rev-list HEAD", "describe --always"):
        result = subprocess.run([tmp_path / "bin" / "git", *words.split()], capture_output=True, text=True, check=False)
        assert (result.returncode, result.stdout) == (1, "")


@pytest.fixture
def no_history(tmp_path: Path) -> Path:
    """Return the folder of the program that wheels are built with."""
    written, folder = git_without_history()
    run = " && ".join(text.replace(folder, str(tmp_path / "bin")) for text in written)
    subprocess.run(["/bin/sh", "-c", run], check=True)
    return tmp_path / "bin"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a source with one submodule that has files, and one that has none."""
    (tmp_path / "source/csrc/cutlass").mkdir(parents=True)
    (tmp_path / "source/csrc/cutlass/LICENSE").touch()
    (tmp_path / "source/csrc/empty").mkdir()
    return tmp_path / "source"


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """Return a folder that has the programs of a build root without git."""
    (tmp_path / "tools").mkdir()
    for name in ("sh", "ls"):
        (tmp_path / "tools" / name).symlink_to(f"/bin/{name}")
    return tmp_path / "tools"


def call_git(folder: Path, source: Path, tools: Path, words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *words.split()],
        executable=folder / "git",
        cwd=source,
        env={"PATH": f"{folder}:{tools}"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        ("submodule update --init csrc/cutlass", 0, ""),
        ("submodule update --init --depth 1 -j 8 csrc/cutlass", 0, ""),
        ("submodule update --init --recursive", 0, ""),
        ("submodule status --recursive", 0, ""),
        ("-C csrc submodule update --init cutlass", 0, ""),
        ("submodule update --init csrc/empty", 1, "csrc/empty"),
        ("submodule update --init csrc/cutlass csrc/missing", 1, "csrc/missing"),
        ("rev-parse HEAD", 128, "not a git repository"),
        ("describe --tags", 128, "not a git repository"),
    ],
)
def test_a_wheel_has_the_submodules_of_its_source_and_no_revision(
    no_history: Path, source: Path, tools: Path, words: str, code: int, error: str
) -> None:
    result = call_git(no_history, source, tools, words)
    assert (result.returncode, result.stdout) == (code, "")
    assert error in result.stderr
    assert bool(result.stderr) == bool(error)


def test_a_git_of_the_build_root_answers_the_rest(no_history: Path, source: Path, tools: Path) -> None:
    (tools / "git").write_text('#!/bin/sh\necho "real $*"\n')
    (tools / "git").chmod(0o755)
    assert call_git(no_history, source, tools, "apply a.patch").stdout == "real apply a.patch\n"
    assert call_git(no_history, source, tools, "submodule update --init csrc/cutlass").stdout == ""


def test_every_wheel_is_built_with_it() -> None:
    with hpccm_target("amd64"):
        (step,) = steps(python_wheel("flash_attn"))
    path = next(line for line in step.command.splitlines() if "export PATH=" in line)
    folder = git_without_history()[1]
    assert f'"{folder}:/opt/venv/bin:$PATH"' in path
    assert step.command.index(f"chmod 755 {folder}/git") < step.command.index("build --wheel")
