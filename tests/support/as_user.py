"""A function run as another user, and folders that every user can reach."""

from __future__ import annotations

import grp
import os
import pickle
import pwd
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

Result = TypeVar("Result")
LOADED = (grp, pwd)  # the other user may not read the folder of Python's own modules


def run_as(uid: int, gid: int, groups: tuple[int, ...], function: Callable[[], Result]) -> Result:
    """Return ``function()`` as the user `uid` evaluates it, in a fork of this process; skip without root."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
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
