"""The command that installs a missing program on this machine, with its package manager.

Names of packages are those of Debian alone. dnf and zypper find the package of a file, and apk that of a command
(``cmd:NAME``, which each package of Alpine provides).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

PACKAGES = {"newuidmap": "uidmap", "unsquashfs": "squashfs-tools", "unshare": "util-linux"}  # others: as the program
MANAGERS: dict[str, tuple[str, Callable[[str], str]]] = {
    "apt-get": ("sudo apt-get install", lambda program: PACKAGES.get(program, program)),
    "dnf": ("sudo dnf install", lambda program: f"/usr/bin/{program}"),
    "zypper": ("sudo zypper install", lambda program: f"/usr/bin/{program}"),
    "apk": ("sudo apk add", lambda program: f"cmd:{program}"),
}


def install_hint(*programs: str) -> str:
    """Return what to type to install programs; their names where the package manager is not known."""
    for manager, (command, name) in MANAGERS.items():
        if shutil.which(manager):
            return " ".join([command, *map(name, programs)])
    return f"install {', '.join(programs)}"
