"""`make quickstart` and `make setup` never wait for an answer: without a password-free sudo they print what to type."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(not shutil.which("make"), reason="make is not installed"),
]
PROGRAMS = ("sh", "make", "grep", "id", "sort", "tr", "rm", "sed", "date", "env", "head")


def test_a_sudo_with_a_password_is_not_started(tmp_path: Path) -> None:
    """On a machine without gpgv, with apt-get, and with a sudo that requires a password."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).symlink_to(str(shutil.which(name)))
    (folder / "sudo").write_text('#!/bin/sh\n[ "$1" = -n ] && exit 1\necho "PROMPTED: $*"\n')
    (folder / "apt-get").write_text('#!/bin/sh\necho "STARTED: $*"\n')
    for name in ("sudo", "apt-get"):
        (folder / name).chmod(0o755)
    shutil.copy(ROOT / "Makefile", tmp_path)
    done = subprocess.run(
        ["make", "tools", "SUDO=sudo", f"SHELL={folder / 'sh'}"],
        cwd=tmp_path, env={"PATH": str(folder)}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode != 0
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("sudo requires a password"))
    assert "type: sudo apt-get install" in line and "gpgv" in line
    assert "PROMPTED" not in done.stdout and "STARTED" not in done.stdout
