"""``ibstat``: the ports of InfiniBand and RoCE devices, one block for each adapter.

A device that vanished ends the listing with ``ibpanic:``; the blocks before it are right."""

from __future__ import annotations

import re

from ..ports import Port

CA = re.compile(r"CA '([^']+)'")
LAYERS = {"InfiniBand": "InfiniBand", "Ethernet": "Ethernet"}


def parse_ibstat(text: str) -> tuple[list[Port], bool]:
    """Return the ports, and whether every adapter has the ports that it announces, with all their lines."""
    ports: list[Port] = []
    announced = 0
    device = firmware = kind = number = ""
    values: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.strip()
        key, colon, value = line.partition(":")
        value = value.strip()
        if found := CA.match(line):
            device, firmware, kind, number, values = found[1], "", "", "", {}
        elif line.startswith("ibpanic"):
            return ports, False
        elif re.fullmatch(r"Port \d+", key) and colon:
            number, values = key[5:], {}
        elif key == "Number of ports" and value.isdigit():
            announced += int(value)
        elif key == "Firmware version":
            firmware = value
        elif key == "CA type":
            kind = value
        elif colon and number:
            values[key] = value
            if key == "Link layer":
                rate = values.get("Rate", "")
                ports.append(
                    Port(
                        device,
                        int(number),
                        values.get("State", "").lower(),
                        values.get("Physical state", "").lower(),
                        int(float(rate)) if re.fullmatch(r"\d+(\.\d+)?", rate) else 0,
                        LAYERS.get(value, value),
                        firmware,
                        kind,
                    )
                )
    devices = len(re.findall(r"^CA '", text, re.MULTILINE))
    return ports, bool(devices) and announced == len(ports) and announced >= devices
