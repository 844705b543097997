"""A function run as another user or without devices, and folders that every user can reach."""

from __future__ import annotations

import grp
import os
import pickle
import pwd
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from envbuild.core.userns import libc

Result = TypeVar("Result")
LOADED = (grp, pwd)  # the other user may not read the folder of Python's own modules


def run_as(uid: int, gid: int, groups: tuple[int, ...], function: Callable[[], Result]) -> Result:
    """Return ``function()`` as the user `uid` evaluates it, in a fork of this process; skip without root."""

    def become() -> None:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)

    return _run_after(become, function)


def run_without(devices: Sequence[str], function: Callable[[], Result]) -> Result:
    """Return ``function()`` in a fork of this process that does not have these devices; skip without root."""

    def hide() -> None:
        libc.unshare(libc.CLONE_NEWNS)
        libc.mount("none", "/", flags=libc.MS_PRIVATE | libc.MS_REC)
        for device in filter(os.path.exists, devices):
            libc.mount("/dev/null", device, flags=libc.MS_BIND)

    return _run_after(hide, function)


def _run_after(prepare: Callable[[], None], function: Callable[[], Result]) -> Result:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user, or hide a device")
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            prepare()
            os.write(writing, pickle.dumps((True, function())))
        except BaseException:
            os.write(writing, pickle.dumps((False, traceback.format_exc())))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        done, value = pickle.loads(answer.read())
    os.waitpid(child, 0)
    assert done, value
    return value


@contextmanager
def open_folder() -> Iterator[Path]:
    """Yield a temporary folder that every user can enter, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="envbuild-open-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
