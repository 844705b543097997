"""Fixtures: stores, and a user without privileges, for tests that build for real (imported by conftest.py)."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from envbuild.build.engines.base import Probe
from envbuild.build.engines.embedded.engine import Embedded
from envbuild.core.store.store import Store
from envbuild.core.userns.removal import remove_tree
from tests.support import tiny_root
from tests.support.programs import import_path
from tests.support.unprivileged_user import plain_user

# Steps of the probe that fail on a machine without a program, a file or a kernel → what the kernel answers there. A
# step with another answer, and a step that is not listed ("init", "start"), is a fault of envbuild.
MISSING = ("kernel", "newuidmap", "subordinate ids")
DENIED = (errno.EPERM, errno.EACCES)
LACKING = {
    "unshare": (*DENIED, errno.ENOSPC, errno.ENOSYS, errno.EINVAL),
    "map ids": (*DENIED, 0),  # newuidmap has no code
    "mount proc": DENIED,
    "bind": DENIED,
    "mount tmpfs": DENIED,
    "mount overlay": (*DENIED, errno.EINVAL, errno.ENODEV),
    "whiteout": (*DENIED, errno.EINVAL, errno.EOPNOTSUPP),
    "opaque folder": (*DENIED, errno.EINVAL, errno.EOPNOTSUPP, errno.ENODATA),
    "chown": (*DENIED, errno.EINVAL),
    "setcap": (*DENIED, errno.EOPNOTSUPP),
    "seccomp": DENIED,
}

Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """Yield a folder that other users can enter (pytest's own cannot be entered by them)."""
    path = Path(tempfile.mkdtemp(prefix="envbuild-test-"))
    path.chmod(0o755)
    deb = path / "tiny.deb"
    deb.write_bytes(tiny_root.tiny_deb())
    deb.chmod(0o644)
    os.environ["ENVBUILD_TEST_DEB"] = str(deb)
    yield path
    os.environ.pop("ENVBUILD_TEST_DEB", None)
    remove_tree(path)


@pytest.fixture
def store(scratch: Path) -> Iterator[Store]:
    """Yield an empty store in which the embedded engine works."""
    with working_store(scratch) as opened:
        yield opened


@contextmanager
def working_store(scratch: Path) -> Iterator[Store]:
    path = Path(tempfile.mkdtemp(dir=scratch))
    path.chmod(0o755)
    yield open_working_store(path)
    remove_tree(path)


def open_working_store(path: Path) -> Store:
    """Return the store `path`; skip the test where this machine lacks what the embedded engine needs.

    Fails for any other reason: a probe or an init that is broken would skip every test of the engine.
    """
    opened = Store.open(path)
    probe = Embedded().probe(opened)
    if missing := missing_capability(probe):
        pytest.skip(f"the embedded engine does not run here: {missing}")
    if not probe.ok:
        pytest.fail(f"the probe of the embedded engine is broken: {probe.step}: {probe.reason}")
    return opened


def missing_capability(probe: Probe) -> str:
    """Return what this machine lacks, if that is why the probe failed; else nothing."""
    lacks = not probe.ok and (probe.step in MISSING or probe.code in LACKING.get(probe.step, ()))
    return f"{probe.step}: {probe.reason}" if lacks else ""


@pytest.fixture(scope="session")
def other_user(scratch: Path) -> Iterator[tuple[str, str]]:
    """(name, python) of an unprivileged user with subordinate ids."""
    with plain_user("newuidmap", "runuser") as name:
        check = "import sys; sys.exit(sys.version_info < (3, 11))"
        for python in (sys.executable, "/usr/bin/python3"):
            command = ["runuser", "-u", name, "--", python, "-c", check]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                break
        else:
            pytest.skip("no python 3.11 that another user can start")
        for path in (tiny_root.__file__, scratch):
            readable = subprocess.run(["runuser", "-u", name, "--", "test", "-r", str(path)], check=False)
            if readable.returncode:
                pytest.skip(f"other users cannot read this path: {path}")
        yield name, python


@pytest.fixture
def as_other(scratch: Path, other_user: tuple[str, str]) -> Run:
    """Build a plan of tiny_root as the other user, optionally inside a wrapper such as ``buildah unshare``."""

    def run(plan: str, store: Path, *wrapper: str) -> dict[str, Any]:
        name, python = other_user
        store.mkdir(exist_ok=True)
        shutil.chown(store, name, name)
        home = f"/home/{name}"  # buildah leaves folders in TMPDIR
        command = [
            "runuser",
            "-u",
            name,
            "--",
            "env",
            f"HOME={home}",
            f"TMPDIR={home}",
            f"XDG_RUNTIME_DIR={home}",
            f"PYTHONPATH={import_path()}",
        ]
        if wrapper:  # a user namespace does not show that root made the folder above
            make = "import sys, pathlib; from envbuild.core.store.store import Store; "
            make += "Store.open(pathlib.Path(sys.argv[1]))"
            subprocess.run([*command, python, "-c", make, str(store)], check=True, cwd=home)
        command += [*wrapper, python, tiny_root.__file__, plan, str(store)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=f"/home/{name}")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)  # type: ignore[no-any-return]

    return run
