"""Ports of a target that this node does not have: no device at all, too few, or those of another network."""

from __future__ import annotations

import re

from .facts.gpus import pci_devices
from .facts.network import EFA
from .facts.node_kind import is_of_target
from .facts.place import COMPUTE, JOB, LOGIN, OTHER, container_sign, device_hint, find_place, is_container, job_id
from .host import Host
from .model import ADMINISTRATOR, HARDWARE, USER, Need, Result, failed
from .ports import Port

PCI, VFIO = "/sys/bus/pci/devices", "vfio-pci"  # the latter: of a virtual machine
MELLANOX = "15b3"  # vendor on the PCI bus
INFINIBAND_CONTROLLER = "0207"  # class of the PCI bus
DRIVER = "modprobe mlx5_ib; dmesg | grep mlx5"
LIST = f"grep -l 0x{MELLANOX} /sys/bus/pci/devices/*/vendor"
POWER = f"drain the node; switch its power off and on; again: reseat or replace the adapter; those on the bus: {LIST}"
NUMBER = re.compile(r"(.*\D)(\d+)")  # of a device: mlx5_3
LINK_TYPES = {"InfiniBand": 1, "Ethernet": 2}  # of mlxconfig


def no_ports(host: Host, need: Need) -> Result:
    """Return the failure of a machine without any InfiniBand device."""
    adapters = [device for device in pci_devices(host) if device.vendor == MELLANOX]
    inside, fault_here = is_container(host), is_of_target(host, need)
    if adapters and inside:
        hook = "export MELLANOX_VISIBLE_DEVICES=all, for enroot's hook 99-mellanox.sh"
        severity, fix = USER, hook if find_place(host)[0] == JOB else device_hint(host, "/dev/infiniband")
    elif adapters:
        severity, fix = ADMINISTRATOR, DRIVER
    elif inside:
        severity, fix = USER, f"on the host: {LIST}"
    elif find_place(host)[0] == COMPUTE and not job_id(host):
        severity, fix = HARDWARE, POWER
    else:
        severity, fix = USER, "use a node of that target"
    found = f"{len(adapters)} on the PCI bus" if adapters else "no adapter is on the PCI bus"
    where = " is visible in this container" if inside else ""
    detail = f"no InfiniBand device{where} ({found}), and {need.source} has {need.nics or 'some'}"
    return failed(detail, severity, fix, drains=fault_here)


def other_network(need: Need, ports: list[Port], layer: str) -> Result | None:
    """Return the failure of a node whose ports are all those of another network and work there, or None: it is not one
    of the target's, and none of its ports is to be changed."""
    working = [port for port in ports if port.active and port.layer not in (layer, EFA) and port.rate >= need.rate]
    if any(port.layer == layer for port in ports) or len(working) < max(need.nics, 1):
        return None
    detail = f"{len(working)} active {working[0].layer} ports, and those of {need.source} are {layer}"
    query = f"mlxconfig -d {working[0].device} query LINK_TYPE_P{working[0].number}"
    fix = f"name a target with ports of {working[0].layer}; what a port is set to: {query}"
    return failed(f"this is not a node of {need.source}: {detail}", USER, fix)


def wrong_layer(need: Need, active: list[Port], other: list[Port], layer: str) -> Result:
    """Return the failure of ports of the other layer beside those of the target's. It drains where they are of the
    board of those: an adapter of its own may be one of storage."""
    listed = ", ".join(f"{port.name} is {port.layer}" for port in other)
    boards = {port.board for port in active}
    wrong = [port for port in other if port.board and port.board in boards]
    link = LINK_TYPES.get(layer, 1)
    fix = "; ".join(
        f"mlxconfig -d {port.device} set LINK_TYPE_P{port.number}={link}; mlxfwreset -d {port.device} reset"
        for port in (wrong or other)[:4]
    )
    detail = f"{len(active)} active {layer} ports, and {need.source} has {need.nics}: {listed}"
    return failed(detail, ADMINISTRATOR, fix, drains=len(active) + len(wrong) >= need.nics)


def too_few(host: Host, need: Need, active: list[Port], layer: str) -> Result:
    """Return the failure of a node with fewer ports than the target, none of which is down: an adapter is gone."""
    detail = f"{len(active)} active {layer} ports, and {need.source} has {need.nics}"
    if hidden := adapters_without_device(host):
        more = f"; adapters without an RDMA device: {', '.join(hidden)}"
        return failed(detail + more, HARDWARE, probe(hidden), drains=is_of_target(host, need))
    if gaps := missing_names(active):
        detail += f"; missing between the others: {', '.join(gaps)}"
    if is_container(host):
        return failed(detail, USER, "export MELLANOX_VISIBLE_DEVICES=all")
    if find_place(host)[0] in (LOGIN, OTHER):
        return failed(detail, USER, "use a node of that target")
    if active and not gaps and need.nics % len(active) == 0:  # nodes with 4 of 8 adapters are built, too
        return failed(f"{detail}: perhaps another build", USER, "a target with the ports of this node: nics: count")
    return failed(detail, HARDWARE, POWER, drains=is_of_target(host, need))


def missing_names(ports: list[Port]) -> list[str]:
    """Return the names that are missing in the numbers of the devices: mlx5_3 between mlx5_2 and mlx5_4."""
    found = [NUMBER.fullmatch(port.device) for port in ports]
    numbers = {int(one[2]): one[1] for one in found if one}
    if len(numbers) < len(ports) or len(set(numbers.values())) != 1 or max(numbers) > 2 * len(ports):
        return []
    return [f"{next(iter(numbers.values()))}{number}" for number in range(max(numbers)) if number not in numbers]


def adapters_without_device(host: Host) -> list[str]:
    """Return the InfiniBand adapters of the bus that have no RDMA device; none in a container, which has not all."""
    found = [one for one in pci_devices(host) if one.vendor == MELLANOX and one.kind == INFINIBAND_CONTROLLER]
    bound = [one.slot for one in found if host.has(f"{PCI}/{one.slot}/infiniband")]
    if container_sign(host) or not bound:  # without any, /sys is not a copy of a machine's
        return []
    given = [one.slot for one in found if host.link_name(f"{PCI}/{one.slot}/driver") == VFIO]
    return [one.slot for one in found if one.slot not in (*bound, *given)]


def probe(slots: list[str]) -> str:
    """Return the command that shows why an adapter has no device."""
    return f"dmesg | grep {slots[0]}; again after a reboot: the adapter or its firmware"
