"""The NVIDIA Container Toolkit injects the driver into containers, of Docker and of enroot."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.gpus import driver_version, pci_gpus
from ..facts.packages import install_command
from ..facts.place import is_container
from ..host import Host
from ..model import ADMINISTRATOR, MINOR, Need, Result, failed, not_applicable, not_run, passed
from ..tools.short_answers import TOOLKIT, parse_version
from .pyxis import has_pyxis

GROUP = "containers"
HELPER = "nvidia-container-cli"  # of libnvidia-container, which enroot's hook 98-nvidia.sh starts


def check(host: Host, need: Need) -> Iterator[Result]:
    """Read its version, and search the program that enroot needs."""
    gpus = bool(pci_gpus(host) or driver_version(host))
    if is_container(host):
        yield not_applicable("it belongs on the host, which cannot be seen from this container")
    elif not host.programs.find(TOOLKIT[0]) and not host.programs.find(HELPER):
        if not gpus:
            yield not_applicable("there is no NVIDIA GPU")
        elif not any(host.programs.find(name) for name in ("enroot", "docker")):  # Apptainer needs none
            yield not_applicable("it is not installed, nor is a program that needs it: enroot, docker")
        else:
            yield failed("it is not installed", severity(host), installing(host, "nvidia-container-toolkit"))
    elif gpus and host.programs.find("enroot") and not host.programs.find(HELPER):
        fix = installing(host, "libnvidia-container-tools")
        yield failed(f"{HELPER} is not installed, which enroot needs", severity(host), fix)
    else:
        output = host.output(*(TOOLKIT if host.programs.find(TOOLKIT[0]) else (HELPER, "--version")))
        version = parse_version(output.text)
        if output.fault or not version:
            yield not_run(output.fault or "it prints no version")
        else:
            yield passed(version)


def severity(host: Host) -> str:
    """Return the severity of a part that is missing: jobs of pyxis need it for each GPU; docker may be there for
    others, and enroot alone for containers without GPUs."""
    return ADMINISTRATOR if host.programs.find("enroot") and has_pyxis(host) else MINOR


def installing(host: Host, package: str) -> str:
    """Return the command that installs a package of NVIDIA's own repository, which no distribution has."""
    return f"{install_command(host, package)}, from NVIDIA's repository: nvidia.github.io/libnvidia-container"
