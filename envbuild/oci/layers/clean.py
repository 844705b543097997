"""Clean list: files that every build leaves behind and that differ from run to run, or that no image needs.

Taken from measurements of two builds of one image (host keys, logs, caches with times, backups). It works on the upper
directory of a unit, before the layer is read; it never reveals something else, because every layer below was cleaned by
the same list.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from envbuild.core.folder_removal import remove_folder

REMOVE = (
    "etc/.pwd.lock",
    "etc/group-",
    "etc/gshadow-",
    "etc/passwd-",
    "etc/resolv.conf.dpkg-*",
    "etc/shadow-",
    "etc/ssh/ssh_host_*",
    "etc/subgid-",
    "etc/subuid-",
    "root/.cache",
    "root/.wget-hsts",
    "run/*",
    "tmp/*",
    "var/cache/apt/*.bin",
    "var/cache/apt/archives/*",
    "var/cache/apt/archives/partial/*",
    "var/cache/debconf/*-old",
    "var/cache/ldconfig/aux-cache",
    "var/cache/man/*",
    "var/lib/apt/lists/*",
    "var/lib/apt/lists/partial/*",
    "var/lib/dpkg/*-old",
    "var/lib/dpkg/lock*",
    "var/lib/dpkg/triggers/Lock",
    "var/lib/systemd/random-seed",
    "var/log/*.log",
    "var/log/apt/*",
    "var/log/btmp",
    "var/log/faillog",
    "var/log/lastlog",
    "var/log/wtmp",
    "var/tmp/*",
)
KEEP = frozenset({"var/cache/apt/archives/partial", "var/lib/apt/lists/partial"})  # apt's own; dpkg --verify wants them


def clean(upper: Path) -> None:
    """Remove and truncate what the list names, in place. Never follows a symbolic link out of `upper`."""
    for pattern in REMOVE:
        for path in find_matches(upper, pattern):
            if path.is_dir() and not path.is_symlink():
                remove_folder(path)
            else:
                path.unlink()
    machine_id = upper / "etc/machine-id"
    if (
        is_real_folder(upper, "etc")
        and machine_id.is_file()
        and not machine_id.is_symlink()
        and machine_id.stat().st_size
    ):
        os.truncate(machine_id, 0)
    dbus = upper / "var/lib/dbus/machine-id"
    if is_real_folder(upper, "var/lib/dbus") and dbus.is_file() and not dbus.is_symlink():
        dbus.unlink()
        dbus.symlink_to("/etc/machine-id")


def find_matches(upper: Path, pattern: str) -> Iterator[Path]:
    """Yield the existing entries of `upper` that match, except whiteouts: they are deletions, not leftovers."""
    folder, _, name = pattern.rpartition("/")
    if not is_real_folder(upper, folder):
        return
    found = sorted((upper / folder).glob(name)) if "*" in name else [upper / pattern]
    for path in found:
        if str(path.relative_to(upper)) in KEEP:
            continue
        if os.path.lexists(path) and not stat.S_ISCHR(path.lstat().st_mode):
            yield path


def is_real_folder(upper: Path, folder: str) -> bool:
    """Return whether `folder` and all above it are real directories of `upper`."""
    path = upper
    for part in folder.split("/"):
        path = path / part
        if path.is_symlink() or not path.is_dir():
            return False
    return True
