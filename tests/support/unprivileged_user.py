"""Users without privileges, for as long as a test needs them."""

from __future__ import annotations

import grp
import os
import pwd
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.tools import require_tools

SUBORDINATE = ("/etc/subuid", "/etc/subgid")
PREFIX = "envbuild-test-"


@contextmanager
def plain_user(*tools: str) -> Iterator[str]:
    """Yield the name of a temporary user with a home and subordinate ids; skip without root, or without `tools`.

    The name holds this process's id: runs of the suite beside each other do not take each other's user away. What
    a killed run left is removed."""
    _require("useradd", "userdel", *tools)
    _remove_old()
    with _user(f"{PREFIX}{os.getpid()}") as name:
        yield name


@contextmanager
def user_without_ids(*tools: str) -> Iterator[str]:
    """Yield the name of a temporary user without subordinate ids; as `plain_user` otherwise."""
    _require("useradd", "userdel", *tools)
    _remove_old()
    with _user(f"{PREFIX}{os.getpid()}-n", "-K", "SUB_UID_COUNT=0", "-K", "SUB_GID_COUNT=0") as name:
        lines = [line for path in SUBORDINATE if Path(path).exists() for line in Path(path).read_text().splitlines()]
        if any(line.startswith(f"{name}:") for line in lines):
            pytest.skip("useradd gives every user subordinate ids here")
        yield name


@contextmanager
def users_of_a_group(*tools: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the names of a temporary group, of two members for whom it is a supplementary group, and of a user outside
    of it; as `plain_user` otherwise."""
    _require("useradd", "userdel", "groupadd", "groupdel", *tools)
    _remove_old()
    group = f"{PREFIX}{os.getpid()}-g"
    subprocess.run(["groupadd", "-f", group], check=True, capture_output=True)
    try:
        with ExitStack() as stack:
            names = [f"{PREFIX}{os.getpid()}-{number}" for number in range(3)]
            one, two, other = (
                stack.enter_context(_user(name, *options))
                for name, options in zip(names, (("-G", group), ("-G", group), ()), strict=True)
            )
            yield group, one, two, other
    finally:
        subprocess.run(["groupdel", group], capture_output=True, check=False)


def _require(*tools: str) -> None:
    require_tools(*tools)
    if os.geteuid() != 0:
        pytest.skip("only root can make a user")


@contextmanager
def _user(name: str, *options: str) -> Iterator[str]:
    _remove(name)  # of an earlier process with this id
    subprocess.run(["useradd", "-m", *options, name], check=True, capture_output=True)
    try:
        yield name
    finally:
        _remove(name)


def _remove_old() -> None:
    """Remove what a killed run left."""
    for name in [entry.pw_name for entry in pwd.getpwall()]:
        if _is_left(name):
            _remove(name)
    for name in [entry.gr_name for entry in grp.getgrall()]:
        if _is_left(name):
            subprocess.run(["groupdel", name], capture_output=True, check=False)


def _is_left(name: str) -> bool:
    made = re.fullmatch(rf"{PREFIX}(\d+)(-\w+)?", name)
    return bool(made and not Path(f"/proc/{made[1]}").exists())


def _remove(name: str) -> None:
    subprocess.run(["userdel", "-r", name], capture_output=True, check=False)
