"""Libraries made by a real compiler and linker."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.tools import tool


def compiled(folder: Path, name: str, code: str, *options: str) -> Path:
    """Return a library from C, by gcc."""
    path = folder / name
    command = [tool("gcc"), "-x", "c", "-", "-shared", "-fPIC", "-O1", "-o", str(path), f"-Wl,-soname,{name}", *options]
    subprocess.run(command, input=code, text=True, check=True, cwd=folder)
    return path
