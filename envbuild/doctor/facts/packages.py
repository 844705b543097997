"""The package manager of this machine's distribution."""

from __future__ import annotations

import re

from ..host import Host

FAMILIES = {  # of ID and ID_LIKE in os-release(5)
    "apt-get": ("debian", "ubuntu"), "dnf": ("rhel", "fedora", "centos", "amzn"), "zypper": ("suse", "sles"),
}  # fmt: skip


def package_manager(host: Host) -> str:
    """Return the name of this distribution's package manager, or ""."""
    words = re.findall(r'^ID(?:_LIKE)?="?([^"\n]*)', host.text("/etc/os-release"), re.MULTILINE)
    found = set(" ".join(words).split())
    return next((program for program, family in FAMILIES.items() if found.intersection(family)), "")


def install_command(host: Host, apt: str, dnf: str = "", zypper: str = "") -> str:
    """Return the command that installs a package, by its name for each package manager: that of this distribution, or
    all where it is not known."""
    names = {"apt-get": apt, "dnf": dnf or apt, "zypper": zypper or dnf or apt}
    if program := package_manager(host):
        return f"{program} install {names[program]}"
    if len(set(names.values())) == 1:
        return f"apt-get, dnf or zypper install {apt}"
    return ", ".join(f"{program} install {name}" for program, name in names.items())
