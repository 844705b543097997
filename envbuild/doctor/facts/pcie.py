"""Links of the PCI bus, by /sys: their speed, width and rate."""

from __future__ import annotations

import re

from ..host import Host

FOLDER = "/sys/bus/pci/devices"
SPEEDS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}  # generation: GT/s of a lane (PCI Express Base)
LAST_8B10B = 5.0  # up to this speed ten bits encode eight


def link_speed(host: Host, slot: str, folder: str = FOLDER) -> float:
    """Return the speed of a device's link in GT/s; 0: not known, as for a function of a virtual machine."""
    found = re.match(r"(\d+(?:\.\d+)?) GT/s", host.text(f"{folder}/{slot}/current_link_speed"))
    return float(found[1]) if found else 0.0


def link_rate(host: Host, slot: str, folder: str = FOLDER) -> int:
    """Return the rate of the link of a device, in Gb/s; 0: not known."""
    speed, width = link_speed(host, slot, folder), host.number(f"{folder}/{slot}/current_link_width") or 0
    return int(speed * width * (0.8 if speed <= LAST_8B10B else 128 / 130))
