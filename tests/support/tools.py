"""Programs of this machine that tests need."""

from __future__ import annotations

import os
import shutil

import pytest


def tool(name: str) -> str:
    """Return the path of a program; skip the test, with its name, where it is missing.

    The PATH of a plain user may lack the folders of the administrator's programs.
    """
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if not found:
        pytest.skip(f"{name} is not installed")
    return found


def require_tools(*names: str) -> None:
    """Skip the test where one of these programs is missing."""
    for name in names:
        tool(name)
