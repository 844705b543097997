"""``ibv_devinfo``: the devices that libibverbs can open.

Indented by tabs or blanks; only ``hca_id:`` begins a line. EFA has transport unspecified and no board."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VerbsDevice:
    """A device. `ports`: those that it announces, `read`: those whose last line was read."""

    name: str
    transport: str = ""
    firmware: str = ""
    vendor: str = ""
    ports: int = -1
    read: int = 0
    active: int = 0

    @property
    def complete(self) -> bool:
        return self.ports == self.read


def parse_devinfo(text: str) -> tuple[list[VerbsDevice], bool]:
    """Return the devices, and whether each has the ports that it announces."""
    devices: list[VerbsDevice] = []
    values: dict[str, str] = {}
    read = active = 0
    for line in [*text.splitlines(), "hca_id:"]:
        key, _, value = line.strip().partition(":")
        value = value.strip()
        if line.startswith("hca_id:"):
            if "hca_id" in values:
                count = values.get("phys_port_cnt", "")
                devices.append(
                    VerbsDevice(
                        values["hca_id"],
                        values.get("transport", ""),
                        values.get("fw_ver", ""),
                        values.get("vendor_id", ""),
                        int(count) if count.isdigit() else -1,
                        read,
                        active,
                    )
                )
            values, read, active = {}, 0, 0
        if key == "link_layer":
            read += 1
        if key == "state" and "ACTIVE" in value:
            active += 1
        if key and (value or values):
            values.setdefault(key, value)
    return devices, bool(devices) and all(device.complete for device in devices)
