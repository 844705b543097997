"""The package manager of this machine's distribution."""

from __future__ import annotations

import re

from ..host import Host

FAMILIES = {  # of ID and ID_LIKE in os-release(5)
    "apt-get": ("debian", "ubuntu"), "dnf": ("rhel", "fedora", "centos", "amzn"), "zypper": ("suse", "sles"),
}  # fmt: skip


def install_command(host: Host, apt: str, dnf: str = "", zypper: str = "") -> str:
    """Return the command that installs a package, by its name for each package manager: that of this distribution, or
    all where it is not known."""
    names = {"apt-get": apt, "dnf": dnf or apt, "zypper": zypper or dnf or apt}
    words = re.findall(r'^ID(?:_LIKE)?="?([^"\n]*)', host.text("/etc/os-release"), re.MULTILINE)
    found = set(" ".join(words).split())
    for program, family in FAMILIES.items():
        if found.intersection(family):
            return f"{program} install {names[program]}"
    if len(set(names.values())) == 1:
        return f"apt-get, dnf or zypper install {apt}"
    return ", ".join(f"{program} install {name}" for program, name in names.items())
