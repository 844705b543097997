"""Wheels of the package index that this machine is configured for."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path


def installed(folder: Path, requirement: str) -> Path:
    """Return a wheel of the index, unpacked."""
    wheels = folder / "wheels"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*pip, "--dest", str(wheels), requirement], check=True)
    wheel = next(wheels.glob(f"{re.split('[=<>]', requirement)[0].replace('-', '_')}-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder
