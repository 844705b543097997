"""A program git that knows one revision, for builds that ask which commit they are."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from envbuild.build.blocks.git_shim import git_that_knows
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
