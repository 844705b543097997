"""Can this engine run here? Found out by doing what a build does, in the store's own folder; the first failure is told
with its fix."""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from envbuild.core.userns import libc, namespaces
from envbuild.core.userns.diagnose import fix_for
from envbuild.core.userns.namespaces import SetupError, describe
from envbuild.engines.base import Probe
from envbuild.engines.embedded import mounts
from envbuild.errors import EngineError
from envbuild.store import Store

# VFS_CAP_REVISION_2 with cap_net_raw permitted and effective (linux/capability.h)
NET_RAW = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)


def probe(store: Store) -> Probe:
    """Try in a fresh process; takes a fraction of a second. Never raises for what is only missing here."""
    from envbuild.engines.embedded.spawn import spawn

    if not hasattr(os, "memfd_create") or os.uname().sysname != "Linux":
        return Probe("embedded", False, "kernel", f"{os.uname().sysname} is not Linux", "use a Linux machine")
    detail = describe()
    try:
        with store.workdir() as work:
            # not Child.result: a SetupError must keep its step
            child = spawn({"mode": "probe", "work": str(work / "probe")})
            output, _ = child.process.communicate()
            with child.answer:
                text = child.answer.read()
    except OSError as error:
        return Probe("embedded", False, "fork", str(error), fix_for("fork", str(error)), detail)
    answer: dict[str, Any] = (
        json.loads(text) if text else {"crash": output.decode(errors="replace") or "the process was killed"}
    )
    if "setup" in answer:
        step, reason = map(str, answer["setup"])
        return Probe("embedded", False, step, reason, fix_for(step, reason), detail)
    if answer:
        reason = str(next(iter(answer.values())))
        return Probe("embedded", False, "start", reason, "", detail)
    return Probe("embedded", True, detail=detail)


def require(store: Store) -> Probe:
    """The probe, or EngineError with its reason and fix."""
    result = probe(store)
    if not result.ok:
        raise EngineError(f"the embedded engine cannot run here: {result.step}: {result.reason}", hint=result.fix)
    return result


def trial(work: Path) -> None:
    """In the unit's process, already root: the same calls as a build, then what dpkg does. Raises SetupError with the
    step that failed."""
    work.mkdir()
    lower = work / "lower"
    for folder in ("etc", "var/cache"):
        (lower / folder).mkdir(parents=True)
    (lower / "etc/gone").touch()
    try:
        namespaces.isolate(network=False)
        read, write = os.pipe()
        child = namespaces.fork_init()
        if child == 0:
            message = b""
            try:
                _inside(work, lower)
            except SetupError as error:
                message = f"{error.step}\0{error.reason}".encode()
            except BaseException as error:
                message = f"init\0{error!r}".encode()
            finally:
                os.write(write, message or b"ok")
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            answer = pipe.read().decode()
        os.waitpid(child, 0)
        if answer != "ok":
            step, _, reason = (answer or "init\0it was killed").partition("\0")
            raise SetupError(step, reason)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _inside(work: Path, lower: Path) -> None:
    namespaces.private_mounts()
    (work / "proc").mkdir()
    mounts.proc(work / "proc")
    root = mounts.overlay(work, [str(lower)])
    mounts.system(root, sys=False)
    upper = work / "upper"

    def whiteout() -> None:
        (root / "etc/gone").unlink()
        if (upper / "etc/gone").lstat().st_rdev != 0:
            raise OSError(errno.EINVAL, "the deletion left no whiteout")

    def opaque() -> None:
        (root / "var/cache").rmdir()
        (root / "var/cache").mkdir()
        if os.getxattr(upper / "var/cache", "user.overlay.opaque") != b"y":
            raise OSError(errno.EINVAL, "the new folder is not opaque")

    def owner() -> None:
        (root / "owned").touch()
        os.chown(root / "owned", 65534, 65534)

    def capability() -> None:
        os.setxattr(root / "owned", "security.capability", NET_RAW)

    steps: dict[str, Callable[[], None]] = {
        "whiteout": whiteout,
        "opaque folder": opaque,
        "chown": owner,
        "setcap": capability,
        "pivot_root": lambda: libc.pivot_root(root),
        "drop capabilities": libc.drop_capabilities,
    }
    for name, action in steps.items():
        try:
            action()
        except OSError as error:
            raise SetupError(name, f"{error.strerror} (errno {error.errno})") from error
