"""Locked files as inputs of units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbuild.build.plan.units import Blob, Input
from envbuild.lock.unit_names import TOOLS

if TYPE_CHECKING:
    from envbuild.lock.model import Lock, UnitLock


def unit_lock(lock: Lock, unit: str) -> UnitLock:
    """Return what the lock has for a unit; nothing, where it has none of that name."""
    from envbuild.lock.model import UnitLock

    return lock.units.get(unit, UnitLock())


def debian_input(lock: Lock, unit: str) -> Input:
    """Return the Debian packages of a unit, as a local repository."""
    files = [lock.debian[file] for file in unit_lock(lock, unit).debian]
    return Input("debs", "debian", tuple(Blob(item.file, item.sha256, item.size) for item in files))


def python_input(lock: Lock, name: str, files: tuple[str, ...]) -> Input:
    """Return wheels or sdists in one folder, `name`."""
    found = [lock.python_files[file] for file in files]
    return Input(name, "files", tuple(Blob(item.file, item.sha256, item.size) for item in found))


def requirements_input(lock: Lock, files: tuple[str, ...]) -> Input:
    """Return the hash-pinned requirement lines of locked Python files."""
    found = sorted((lock.python_files[file] for file in files), key=lambda item: item.name)
    text = "".join(f"{item.name}=={item.version} --hash=sha256:{item.sha256}\n" for item in found)
    return Input("requirements", "text", texts=(("requirements.txt", text),))


def archives_input(lock: Lock, files: tuple[str, ...]) -> Input:
    """Return the tarballs of sources."""
    found = [lock.sources[file] for file in files]
    return Input("archives", "files", tuple(Blob(item.file, item.sha256, item.size) for item in found))


def tools_input(lock: Lock) -> Input:
    """Return the locked uv, so that the host's does not decide over the bytes of a venv."""
    return Input("tools", "tree", python_input(lock, "tools", unit_lock(lock, TOOLS).python).blobs)
