"""enroot is installed, with hooks for the devices, and its folders are on a local disk with room."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..facts.enroot_settings import DATA, closed_folders, enroot_folder, settings_folder
from ..facts.gpus import driver_version, pci_gpus
from ..facts.neuron import neuron_devices
from ..facts.packages import install_command
from ..facts.place import COMPUTE, find_place, is_container, job_id
from ..facts.storage import amount, file_system
from ..host import Host
from ..model import ADMINISTRATOR, MINOR, Need, Result, failed, not_applicable, not_run, passed
from ..tools.short_answers import ENROOT, parse_version
from .pyxis import has_pyxis

GROUP = "containers"
ROOM = 20 << 30  # an unpacked image
MISSING = re.compile(r"Command not found: (\S+)")


def check(host: Host, need: Need) -> Iterator[Result]:
    """Read version, settings and hooks."""
    if is_container(host):
        yield not_applicable("it belongs on the host, which cannot be seen from this container")
        return
    if not host.programs.find(ENROOT[0]):
        if find_place(host)[0] == COMPUTE and has_pyxis(host):
            detail = "it is not installed, and srun has --container-image, which needs it"
            severity = ADMINISTRATOR if pci_gpus(host) or driver_version(host) or neuron_devices(host) else MINOR
            yield failed(detail, severity, "install enroot on this node: github.com/NVIDIA/enroot/releases")
        else:  # a site may start containers with Apptainer or podman, or none
            yield not_applicable("enroot is not installed")
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
    if closed := closed_folders(host):
        listed = ", ".join(f"{name} {path}" for name, path in closed.items())
        severity = ADMINISTRATOR if job_id(host) else MINOR
        yield failed(f"enroot {version}: this user may not make {listed}", severity, opening(folder, closed))
        return
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
            drains=False,  # a job may mount /dev/infiniband itself
        )
        return
    path = enroot_folder(host, DATA)
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
    return f"as the same user: enroot version; the settings: {config}"


def opening(folder: str, closed: dict[str, str]) -> str:
    """Return the settings that let each user make the folders of enroot."""
    runtime = "ENROOT_RUNTIME_PATH /run/enroot/user-$(id -u), which Slurm's prolog makes for each user"
    own = "{} in a folder that each user may make"
    lines = [runtime if path.startswith("/run") else own.format(name) for name, path in closed.items()]
    return f"{folder}/enroot.conf: {'; '.join(lines)}"
