"""The command line as a person has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def envbuild(*arguments: str, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    """What ``envbuild ARGUMENTS`` says and its exit code; `env` beside the variables of whoever runs the tests."""
    environ = {**os.environ, "COLUMNS": "120", **env}
    command = [sys.executable, "-m", "envbuild", *arguments]
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, check=False)
