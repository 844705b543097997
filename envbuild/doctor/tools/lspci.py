"""``lspci -Dnn``: PCI devices with the numbers of their class, vendor and device."""

from __future__ import annotations

import re
from typing import NamedTuple

LINE = re.compile(
    r"(?P<slot>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) .*?\[(?P<kind>[0-9a-f]{4})\]: "
    r"(?P<name>.*) \[(?P<vendor>[0-9a-f]{4}):(?P<device>[0-9a-f]{4})\]"
)


class PciDevice(NamedTuple):
    """A device of the PCI bus; numbers in hexadecimal: class 0302, vendor 10de."""

    slot: str
    kind: str
    vendor: str
    device: str
    name: str = ""


def parse_lspci(text: str) -> list[PciDevice]:
    """Return the devices; lines of another form are left out."""
    found = [LINE.match(line) for line in text.splitlines()]
    return [PciDevice(one["slot"], one["kind"], one["vendor"], one["device"], one["name"]) for one in found if one]
