"""The probe of the embedded engine: it does what a build does, in the store's own folder, and reports the first failure
with its fix."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path

from envbuild.build.engines.base import Probe
from envbuild.build.engines.embedded import mounts
from envbuild.core.errors import EngineError
from envbuild.core.folder_removal import discard_folder
from envbuild.core.rooted_tree import RootedTree
from envbuild.core.store.store import Store
from envbuild.core.userns import libc, namespaces
from envbuild.core.userns.answer import decode, encode, encode_error
from envbuild.core.userns.diagnose import fix_for
from envbuild.core.userns.id_maps import describe
from envbuild.core.userns.namespaces import SetupError
from envbuild.core.userns.process import spawn
from envbuild.core.userns.profiles import BUILD
from envbuild.core.userns.seccomp import make_program

# VFS_CAP_REVISION_2 with cap_net_raw permitted and effective (linux/capability.h)
NET_RAW = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)


def probe_machine(store: Store) -> Probe:
    """Try in a fresh process; takes a fraction of a second. A missing feature raises nothing.

    Raises EngineError where the disk is full."""
    if not hasattr(os, "memfd_create") or os.uname().sysname != "Linux":
        return Probe("embedded", False, "kernel", f"{os.uname().sysname} is not Linux", "use a Linux machine")
    detail = describe()
    try:
        with store.workdir() as work:
            child = spawn(try_build, {"work": str(work / "probe")})
            output, _ = child.process.communicate()
    except OSError as error:
        return Probe("embedded", False, "fork", str(error), fix_for("fork", error.errno or 0), detail)
    try:
        child.result()
    except SetupError as error:
        return Probe("embedded", False, error.step, error.reason, fix_for(error.step, error.code), detail, error.code)
    except OSError as error:
        return Probe("embedded", False, "start", str(error), fix_for("start", error.errno or 0), detail)
    except EngineError:
        reason = output.decode(errors="replace") or "the process was killed"
        return Probe("embedded", False, "start", reason, "", detail)
    return Probe("embedded", True, detail=detail)


def try_build(*, work: str) -> None:
    """Do what a build does, then what dpkg does, in a process that is root. Raises SetupError with the step."""
    folder = Path(work)
    folder.mkdir()
    try:
        _try_build(folder)
    finally:
        discard_folder(folder)


def _try_build(work: Path) -> None:
    lower = work / "lower"
    for folder in ("etc", "var/cache"):
        (lower / folder).mkdir(parents=True)
    (lower / "etc/gone").touch()
    namespaces.isolate(network=False)
    read, write = os.pipe()
    child = namespaces.fork_init()
    if child == 0:
        answer = encode(None)
        try:
            _inside(work, lower)
        except SetupError as error:
            answer = encode_error(error)
        except BaseException as error:
            answer = encode_error(SetupError("init", repr(error)))
        finally:
            os.write(write, answer)
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    if not text:
        raise SetupError("init", "it was killed")
    decode(text, "the init of a unit")


def _inside(work: Path, lower: Path) -> None:
    namespaces.private_mounts()
    with RootedTree(work) as tree:
        mounts.mount_proc(tree)
    root = mounts.mount_overlay(work, [str(lower)])
    with RootedTree(root) as tree:
        mounts.mount_system(tree, sys=False)
    upper = work / "upper"
    program = make_program(BUILD) if libc.has_filters() else b""

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
        "seccomp": lambda: libc.set_filter(program) if program else None,
        "drop capabilities": libc.drop_capabilities,
    }
    for name, action in steps.items():
        try:
            action()
        except OSError as error:
            raise SetupError.of(name, error) from error
