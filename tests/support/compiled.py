"""Libraries made by a real compiler and linker."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def compiled(folder: Path, name: str, code: str, *options: str) -> Path:
    """Return a library from C, by gcc."""
    if not shutil.which("gcc"):
        pytest.skip("gcc is missing")
    path = folder / name
    command = ["gcc", "-x", "c", "-", "-shared", "-fPIC", "-O1", "-o", str(path), f"-Wl,-soname,{name}", *options]
    subprocess.run(command, input=code, text=True, check=True, cwd=folder)
    return path
