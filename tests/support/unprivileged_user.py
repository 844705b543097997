"""A user without privileges, for as long as a test needs one."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PREFIX = "envbuild-test-"


@contextmanager
def plain_user(*tools: str) -> Iterator[str]:
    """Yield the name of a temporary user with a home and subordinate ids; skip without root, or without `tools`.

    The name holds this process's id: runs of the suite beside each other do not take each other's user away. What
    a killed run left is removed."""
    for tool in ("useradd", "userdel", *tools):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    if os.geteuid() != 0:
        pytest.skip("only root can make a user")
    for entry in pwd.getpwall():
        made = re.fullmatch(rf"{PREFIX}(\d+)", entry.pw_name)
        if made and not Path(f"/proc/{made[1]}").exists():
            _remove(entry.pw_name)
    name = f"{PREFIX}{os.getpid()}"
    _remove(name)  # of an earlier process with this id
    subprocess.run(["useradd", "-m", name], check=True, capture_output=True)
    try:
        yield name
    finally:
        _remove(name)


def _remove(name: str) -> None:
    subprocess.run(["userdel", "-r", name], capture_output=True, check=False)
