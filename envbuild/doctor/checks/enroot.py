"""enroot is installed, with hooks for the devices, and its folders are on a local disk with room."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from ..facts.gpus import driver_version, pci_gpus
from ..facts.neuron import neuron_devices
from ..facts.packages import install_command
from ..facts.place import COMPUTE, find_place, is_container
from ..facts.storage import amount, file_system
from ..host import Host
from ..model import ADMINISTRATOR, MINOR, Need, Result, failed, not_run, passed
from ..tools.short_answers import ENROOT, parse_version
from .pyxis import has_pyxis

GROUP = "containers"
SYSTEM = "/etc/enroot"  # of the packages for Debian and Red Hat
SETTINGS = re.compile(r"^\s*(?:config::export )?ENROOT_SYSCONF_PATH[ =]+\"?(/[^\s\"$]+)", re.MULTILINE)
ROOM = 20 << 30  # an unpacked image
FOLDER = re.compile(r"cannot create directory ['\u2018]?([^'\u2019:]+)")  # of mkdir, with which each command begins
MISSING = re.compile(r"Command not found: (\S+)")
VARIABLE = re.compile(r"\$\{(\w+)(?::?-([^{}]*))?\}|\$(\w+)")  # $NAME, ${NAME}, ${NAME:-DEFAULT}


def check(host: Host, need: Need) -> Iterator[Result]:
    """Read version, settings and hooks."""
    if is_container(host):
        yield not_run("it belongs on the host, which cannot be seen from this container")
        return
    if not host.programs.find(ENROOT[0]):
        if find_place(host)[0] == COMPUTE and has_pyxis(host):
            detail = "it is not installed, and srun has --container-image, which needs it"
            severity = ADMINISTRATOR if pci_gpus(host) or driver_version(host) or neuron_devices(host) else MINOR
            yield failed(detail, severity, "install enroot on this node: github.com/NVIDIA/enroot/releases")
        else:  # a site may start containers with Apptainer or podman, or none
            yield not_run("enroot is not installed")
        return
    output = host.output(*ENROOT)
    version = parse_version(output.text)
    if output.code and not output.fault:
        severity = ADMINISTRATOR if find_place(host)[0] == COMPUTE else MINOR
        yield failed(output.failure("enroot version"), severity, repair(host, output.errors + output.text))
        return
    if output.fault or not version:
        yield not_run(output.fault or f"it prints no version: {(output.text + output.errors).strip()[:100]}")
        return
    folder = settings_folder(host)
    hooks = host.names(f"{folder}/hooks.d")
    if driver_version(host) and "98-nvidia.sh" not in hooks:
        yield failed(
            f"enroot {version} has no hook 98-nvidia.sh",
            ADMINISTRATOR,
            f"install it from enroot's conf/hooks to {folder}/hooks.d",
        )
        return
    if need.fabric == "infiniband" and "99-mellanox.sh" not in hooks:
        yield failed(
            f"enroot {version} has no hook 99-mellanox.sh",
            ADMINISTRATOR,
            f"install it from enroot's conf/hooks to {folder}/hooks.d",
        )
        return
    path = data_path(host)
    found = file_system(host, path) if host.is_real else None
    if found and found.is_network:
        yield failed(
            f"enroot {version}: ENROOT_DATA_PATH {path} is on {found.kind}",
            MINOR,
            f"{folder}/enroot.conf: ENROOT_DATA_PATH on a local disk",
        )
    elif found and found.free < ROOM and found.kind != "tmpfs":
        yield failed(
            f"enroot {version}: {amount(found.free)} free in {path}",
            MINOR,
            f"enroot list; enroot remove NAME; or ENROOT_DATA_PATH in {folder}/enroot.conf",
        )
    else:
        where = f", data in {path}" + (f" ({found.kind}, {amount(found.free)} free)" if found else "")
        yield passed(f"enroot {version}, {len(hooks)} hooks{where}")


def repair(host: Host, words: str) -> str:
    """Return what makes a command of enroot start."""
    config = f"{settings_folder(host)}/enroot.conf"
    if missing := MISSING.search(words):
        return install_command(host, missing[1])
    if found := FOLDER.search(words):
        if found[1].startswith("/run"):
            return f"{config}: ENROOT_RUNTIME_PATH /run/enroot/user-$(id -u), which Slurm's prolog makes for each user"
        return f"{config}: a folder that each user may make, in the place of {found[1]}"
    return f"as the same user: enroot version; the settings: {config}"


def settings_folder(host: Host) -> str:
    """Return the folder of enroot's settings and hooks: the environment's, or the one that enroot's program, a script
    of bash, was installed with (NVIDIA/enroot, enroot.in)."""
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


def data_path(host: Host) -> str:
    """Return the folder of unpacked images, by environment, settings or enroot's own rule.

    enroot evaluates its settings as a shell does. What only a shell knows ends the path at the folder above."""
    text = host.environ.get("ENROOT_DATA_PATH") or data_setting(host) or "${XDG_DATA_HOME}/enroot"
    home, user = host.environ.get("HOME", "/root"), str(os.getuid())
    values = {"XDG_DATA_HOME": home + "/.local/share", "HOME": home, "UID": user, "EUID": user, **host.environ}
    text = re.sub(r"\$\(id -u\)", user, text)
    for _ in range(2):  # a default may have variables, too
        text = VARIABLE.sub(lambda found: values.get(found[1] or found[3]) or found[2] or "", text)
    return re.split(r"[^/]*(?:\$[({]|`)", text)[0] or "/"


def data_setting(host: Host) -> str:
    """Return ENROOT_DATA_PATH of enroot's settings as it is written there; the first file that has it counts."""
    config = f"{settings_folder(host)}/enroot.conf"
    parts = [f"{config}.d/{name}" for name in host.names(f"{config}.d") if name.endswith(".conf")]
    for path in (config, *sorted(parts)):
        if line := re.search(r"^[ \t]*ENROOT_DATA_PATH[ \t=]+(\S.*)", host.text(path), re.MULTILINE):
            return str(line[1]).strip().strip("\"'")
    return ""
