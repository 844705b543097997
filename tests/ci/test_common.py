"""The parts that all steps of CI share: a checkout cannot have the files that prepare.sh writes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ROOT
from tests.support.tools import tool

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", ["plan", "build", "publish"])
def test_a_folder_of_the_repository_is_not_the_private_folder(name: str, tmp_path: Path) -> None:
    git, seen = tool("git"), tmp_path / "seen"
    env_file = tmp_path / ".ci-work/envbuild/env.sh"
    env_file.parent.mkdir(parents=True)
    env_file.write_text(f'echo "ran ${{CI_JOB_TOKEN:-}}" > {seen}\n')
    for words in (("init", "-q"), ("add", "-f", ".ci-work")):
        subprocess.run([git, *words], cwd=tmp_path, check=True)
    env = {name: text for name, text in os.environ.items() if name not in ("WORK", "RUNNER_TEMP")}
    done = subprocess.run(
        ["bash", str(ROOT / f".github/steps/{name}.sh")],
        cwd=tmp_path,
        env={**env, "CI_JOB_TOKEN": "secret", "OUT": str(tmp_path / "out")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and not seen.exists()
    assert done.stderr.startswith(f"error: WORK is a folder of the repository: {env_file.parent}\nhint: git rm")
