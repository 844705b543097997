"""Network devices for RDMA: InfiniBand, RoCE and EFA, from /sys/class/infiniband; from ibstat where that is hidden."""

from __future__ import annotations

import re

from ..host import Host
from ..model import Need
from ..ports import Port
from ..tools.ibstat import parse_ibstat
from .gpus import AMAZON, pci_devices

FOLDER = "/sys/class/infiniband"
IBSTAT = ("ibstat",)
EFA_DEVICES = ("efa0", "efa1", "efa2", "efa3", "efa4")  # PCI numbers of EFA (linux-rdma, providers/efa)
SWITCH_BRIDGE = "SW_MNG"  # in the product data of these adapters, which root may read: NVIDIA's fabric manager guide
INFINIBAND, ETHERNET, EFA = "InfiniBand", "Ethernet", "EFA"


def rdma_ports(host: Host) -> list[Port]:
    """Return the ports of all devices."""
    return host.once(read_ports)


def read_ports(host: Host) -> list[Port]:
    """Return the ports by /sys, or by ibstat. The bridges to NVLink switches of HGX B200 are not ports of a network."""
    found = []
    for device in host.names(FOLDER):
        place = f"{FOLDER}/{device}"
        if SWITCH_BRIDGE in host.text(f"{place}/device/vpd"):
            continue
        firmware, kind = host.text(f"{place}/fw_ver"), host.text(f"{place}/hca_type")
        driver = host.link_name(f"{place}/device/driver")
        for number in host.names(f"{place}/ports"):
            port = f"{place}/ports/{number}"
            state, physical = (host.text(f"{port}/{name}").rpartition(":")[2] for name in ("state", "phys_state"))
            rate = re.match(r"\d+", host.text(f"{port}/rate"))
            layer = EFA if driver == "efa" else host.text(f"{port}/link_layer")
            found.append(
                Port(
                    device,
                    int(number) if number.isdigit() else 0,
                    state.strip().lower(),
                    physical.strip().lower(),
                    int(rate[0]) if rate else 0,
                    layer,
                    firmware,
                    kind,
                    host.text(f"{place}/board_id"),
                )
            )
    if not found and host.programs.find(IBSTAT[0]):
        output = host.output(*IBSTAT)
        found = parse_ibstat(output.text)[0] if not output.fault else []
    return found


def uses_rdma(host: Host, need: Need) -> bool:
    """Return whether jobs send through RDMA devices: those of a target over Ethernet use TCP, and without a target the
    one port of a machine's Ethernet adapter shows an RDMA device, too."""
    if need.fabric:
        return need.fabric in ("infiniband", "efa")
    ports = rdma_ports(host)
    return len(ports) > 1 or any(port.layer != ETHERNET for port in ports)


def counters(host: Host, ports: list[Port], names: dict[str, tuple[str, ...]]) -> dict[str, int]:
    """Return the values of counters: "mlx5_0:1 symbol_error" → number. `names`: folder of a port → its files."""
    found = {}
    for port in ports:
        for folder, files in names.items():
            for name in files:
                value = host.number(f"{FOLDER}/{port.device}/ports/{port.number}/{folder}/{name}")
                if value is not None:
                    found[f"{port.name} {name}"] = value
    return found


def efa_devices(host: Host) -> list[str]:
    """Return the EFA devices of the PCI bus."""
    return [one.slot for one in pci_devices(host) if one.vendor == AMAZON and one.device in EFA_DEVICES]


def ofed_version(host: Host) -> str:
    """Return the version of the drivers for mlx5 if they are not the kernel's own: 24.10-0.7.0; or ""."""
    version = host.text("/sys/module/mlx5_core/version")
    return version if re.match(r"\d+\.\d+-", version) else ""
