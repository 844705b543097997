"""The folder of this package."""

from __future__ import annotations

import sys
from pathlib import Path

import envbuild

PACKAGE = Path(envbuild.__file__).resolve().parent


def import_path() -> list[str]:
    """Return this process's import path, the folder that holds the package first, for a process started with -I."""
    root = str(PACKAGE.parent)
    return [root, *(item for item in sys.path if item and item != root)]
