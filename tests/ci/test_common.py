"""The parts that all steps of CI share: a checkout cannot have the files that prepare.sh writes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ROOT

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", ["plan", "build", "publish"])
@pytest.mark.parametrize("work", ["", ".ci-work/envbuild", "link/envbuild"])
def test_a_folder_of_the_checkout_is_not_the_private_folder(name: str, work: str, tmp_path: Path) -> None:
    """Whether git lists it or not: a bare repository in it is none of its files."""
    checkout, home, seen = tmp_path / "checkout", tmp_path / "home", tmp_path / "seen"
    env_file = checkout / ".ci-work/envbuild/env.sh"
    env_file.parent.mkdir(parents=True)
    home.mkdir()
    env_file.write_text(f'echo "ran ${{REGISTRY_PASSWORD:-}}" > {seen}\n')
    (tmp_path / "link").symlink_to(checkout / ".ci-work")
    env = {name: text for name, text in os.environ.items() if name not in ("RUNNER_TEMP", "XDG_CACHE_HOME", "IMAGE")}
    env |= {"WORK": work and str((checkout if work.startswith(".") else tmp_path) / work), "HOME": str(home)}
    done = subprocess.run(
        ["bash", str(ROOT / f".github/steps/{name}.sh")],
        cwd=checkout,
        env={**env, "REGISTRY_PASSWORD": "secret", "OUT": str(tmp_path / "out"), "ENVBUILD": "/bin/false"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode and not seen.exists()
    if work:
        assert done.stderr.startswith(f"error: WORK is in the checkout: {env_file.parent}\nhint: WORK=/another/folder")
    else:
        assert next(path.name for path in (home / ".cache/envbuild-ci").iterdir()).isalnum()
