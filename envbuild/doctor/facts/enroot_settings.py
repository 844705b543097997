"""Settings of enroot: a file of lines, which its program, a script of bash, evaluates (NVIDIA/enroot, enroot.in)."""

from __future__ import annotations

import os
import re

from ..host import Host
from ..tools.short_answers import ENROOT

SYSTEM = "/etc/enroot"  # of the packages for Debian and Red Hat
SETTINGS = re.compile(r"^\s*(?:config::export )?ENROOT_SYSCONF_PATH[ =]+\"?(/[^\s\"$]+)", re.MULTILINE)
VARIABLE = re.compile(r"\$\{(\w+)(?::?-([^{}]*))?\}|\$(\w+)")  # $NAME, ${NAME}, ${NAME:-DEFAULT}
DATA = "ENROOT_DATA_PATH"
DEFAULTS = {  # the folders that each command of enroot makes
    DATA: "${XDG_DATA_HOME}/enroot", "ENROOT_CACHE_PATH": "${XDG_CACHE_HOME}/enroot",
    "ENROOT_RUNTIME_PATH": "${XDG_RUNTIME_DIR}/enroot",
}  # fmt: skip


def settings_folder(host: Host) -> str:
    """Return the folder of enroot's settings and hooks: the environment's, or the one that its program was installed
    with."""
    program = host.programs.find(ENROOT[0])
    own = SETTINGS.search(read_start(program)) if program else None
    return host.environ.get("ENROOT_SYSCONF_PATH") or (own[1] if own else SYSTEM)


def read_start(program: str) -> str:
    """Return the beginning of a program's text."""
    try:
        with open(program, errors="replace") as file:  # noqa: PTH123
            return file.read(20_000)
    except OSError:
        return ""


def enroot_folder(host: Host, name: str = DATA) -> str:
    """Return one of enroot's folders, by environment, settings or enroot's own rule.

    enroot evaluates its settings as a shell does. What only a shell knows ends the path at the folder above."""
    text = host.environ.get(name) or read_setting(host, name) or DEFAULTS[name]
    home, user = host.environ.get("HOME", "/root"), str(os.getuid())
    values = {
        "XDG_DATA_HOME": home + "/.local/share", "XDG_CACHE_HOME": home + "/.cache", "XDG_RUNTIME_DIR": "/run",
        "HOME": home, "UID": user, "EUID": user, **host.environ,
    }  # fmt: skip
    text = re.sub(r"\$\(id -u\)", user, text)
    for _ in range(2):  # a default may have variables, too
        text = VARIABLE.sub(lambda found: values.get(found[1] or found[3]) or found[2] or "", text)
    return re.split(r"[^/]*(?:\$[({]|`)", text)[0] or "/"


def read_setting(host: Host, name: str) -> str:
    """Return a value of enroot's settings as it is written there; the first file that has it counts."""
    config = f"{settings_folder(host)}/enroot.conf"
    parts = [f"{config}.d/{part}" for part in host.names(f"{config}.d") if part.endswith(".conf")]
    for path in (config, *sorted(parts)):
        if line := re.search(rf"^[ \t]*{name}[ \t=]+(\S.*)", host.text(path), re.MULTILINE):
            return str(line[1]).strip().strip("\"'")
    return ""


def closed_folders(host: Host) -> dict[str, str]:
    """Return the settings of folders that this user may neither use nor make, with the folders; root may each."""
    found = {}
    for name in DEFAULTS if os.getuid() else ():
        folder = path = enroot_folder(host, name)
        while not host.has(path) and path != os.path.dirname(path):  # noqa: PTH120
            path = os.path.dirname(path)  # noqa: PTH120
        if not os.access(host.path(path), os.W_OK | os.X_OK):
            found[name] = folder
    return found
