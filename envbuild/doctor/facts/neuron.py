"""AWS Neuron devices, by the kernel module."""

from __future__ import annotations

import re

from ..host import Host

FOLDER = "/sys/devices/virtual/neuron_device"
TOOL = "/opt/aws/neuron/bin/neuron-ls"


def neuron_devices(host: Host) -> dict[str, int]:
    """Return the cores of each device."""
    names = [name for name in host.names(FOLDER) if re.fullmatch(r"neuron\d+", name)]
    return {name: host.number(f"{FOLDER}/{name}/core_count") or 0 for name in names}


def neuron_command(host: Host) -> tuple[str, str]:
    """Return the command line of neuron-ls, which may be installed beside PATH."""
    return ("neuron-ls" if host.programs.find("neuron-ls") else TOOL, "-j")


def neuron_driver(host: Host) -> str:
    """Return the version of the kernel module, or ""."""
    return host.text("/sys/module/neuron/version")


def instance_type(host: Host) -> str:
    """Return the kind of the machine: trn1.32xlarge."""
    names = list(neuron_devices(host))
    return host.text(f"{FOLDER}/{names[0]}/info/architecture/instance_type") if names else ""
