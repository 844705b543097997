"""The node has the network ports of the target: number, rate, link layer; each is active."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..facts.gpus import pci_devices
from ..facts.network import EFA, INFINIBAND, rdma_ports
from ..facts.place import COMPUTE, JOB, device_hint, find_place, is_container
from ..host import Host
from ..model import ADMINISTRATOR, HARDWARE, MINOR, USER, Need, Result, failed, not_run, passed
from ..ports import Port

GROUP = "network"
MELLANOX = "15b3"  # vendor on the PCI bus
INFINIBAND_CONTROLLER = "0207"  # class of the PCI bus
DRIVER = "modprobe mlx5_ib; dmesg | grep mlx5"
LIST = f"grep -l 0x{MELLANOX} /sys/bus/pci/devices/*/vendor"
FIXES = {
    "init": "no subnet manager runs in this fabric: start that of the switch, or opensm on one server",
    "armed": "the subnet manager has not ended its work: sminfo",
    "down": "cable, transceiver or port of the switch: ibstat; mlxlink -d DEVICE",
    "disabled": "it is switched off: ibportstate -C DEVICE LID PORT enable; RoCE: ip link set INTERFACE up",
}


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare the ports with the target's, and with each other."""
    ports = [port for port in rdma_ports(host) if port.layer != EFA]
    wanted = need.nics if need.fabric == "infiniband" else 0
    adapters = [device for device in pci_devices(host) if device.vendor == MELLANOX]
    if not ports and need.fabric != "infiniband":
        idle = [device.slot for device in adapters if device.kind == INFINIBAND_CONTROLLER]
        if idle and not is_container(host):
            detail = f"InfiniBand adapters on the PCI bus, and no RDMA device: {', '.join(idle[:8])}"
            yield failed(detail, MINOR, DRIVER)
        else:
            yield not_run("there is no InfiniBand or RoCE device")
        return
    if not ports:
        inside = is_container(host)
        if adapters and inside:
            hook = "export MELLANOX_VISIBLE_DEVICES=all, for enroot's hook 99-mellanox.sh"
            severity, fix = USER, hook if find_place(host)[0] == JOB else device_hint(host, "/dev/infiniband")
        elif adapters:
            severity, fix = ADMINISTRATOR, DRIVER
        elif inside:
            severity, fix = ADMINISTRATOR, f"on the host: {LIST}"
        elif find_place(host)[0] == COMPUTE and not host.environ.get("SLURM_JOB_ID"):
            severity, fix = ADMINISTRATOR, "drain the node; switch its power off and on; or use a node of that target"
        else:
            severity, fix = USER, "use a node of that target"
        found = f"{len(adapters)} on the PCI bus" if adapters else "no adapter is on the PCI bus"
        where = " is visible in this container" if inside else ""
        yield failed(f"no InfiniBand device{where} ({found}), and {need.source} has {wanted or 'some'}", severity, fix)
        return
    layer = need.layer or INFINIBAND
    enough = [port for port in ports if port.layer == layer and port.active and port.rate >= need.rate]
    if wanted and len(enough) >= wanted:
        others = [port for port in ports if port not in enough]  # of storage, or without a cable
        more = f"; others: {', '.join(f'{one.name} {one.state} {one.rate} Gb/s' for one in others)}" if others else ""
        yield passed(f"{len(enough)} active {layer} ports, {need.rate or enough[0].rate} Gb/s{more}")
        return
    judged = [port for port in ports if port.layer == layer] if need.fabric == "infiniband" else ports
    down = [port for port in judged if not port.active]
    active = [port for port in judged if port.active]
    usual = Counter(port.rate for port in active).most_common(1)[0][0] if active else 0
    slow = [port for port in active if port.rate < (need.rate if wanted and need.rate else usual_rate(port, active))]
    other = [port for port in ports if port.layer not in (layer, EFA)]
    if not wanted and active and down:
        states = ", ".join(f"{port.name} {port.state} {port.physical}".strip() for port in down)
        yield failed(
            f"not active: {states}; {len(active)} others are",
            MINOR,
            f"none, if it needs no cable; {repair(down[0], active)}",
        )
    elif down and (
        (wanted and len(active) < wanted) or (layer == INFINIBAND and any(port.layer == INFINIBAND for port in down))
    ):
        states = ", ".join(f"{port.name} {port.state} {port.physical}".strip() for port in down)
        yield failed(
            f"not active: {states}",
            HARDWARE if down[0].state == "down" else ADMINISTRATOR,
            repair(down[0], active),
        )
    elif wanted and len(active) < wanted and other and len(active) + len(other) >= wanted:
        listed = ", ".join(f"{port.name} is {port.layer}" for port in other)
        number = {INFINIBAND: 1}.get(layer, 2)
        fix = f"mlxconfig -d DEVICE set LINK_TYPE_P1={number}; then mlxfwreset -d DEVICE reset, or reboot"
        yield failed(
            f"{len(active)} active {layer} ports, and {need.source} has {wanted}: {listed}", ADMINISTRATOR, fix
        )
    elif wanted and len(active) < wanted:
        yield failed(
            f"{len(active)} active {layer} ports, and {need.source} has {wanted}",
            ADMINISTRATOR,
            "export MELLANOX_VISIBLE_DEVICES=all" if is_container(host) else f"{LIST}; or use a node of that target",
        )
    elif slow:
        rates = ", ".join(f"{port.name} {port.rate} Gb/s" for port in slow)
        yield failed(
            f"slower than {need.rate or usual} Gb/s: {rates}",
            HARDWARE if wanted else MINOR,
            "reseat the cable; mlxlink -d DEVICE",
        )
    elif not active:
        yield not_run(f"no port is active: {names(ports)}")
    else:
        yield passed(f"{len(active)} active {'/'.join(sorted({port.layer for port in active}))} ports, {usual} Gb/s")


def repair(port: Port, active: list[Port]) -> str:
    """Return what makes a port active."""
    if port.state == "init" and any(one.layer == port.layer for one in active):  # a subnet manager made those active
        log = "the subnet manager's log about this port"
        return f"sminfo -C {port.device} -P {port.number}; {log}; the switch that it is connected to"
    return FIXES["disabled"] if port.physical == "disabled" else FIXES.get(port.state, FIXES["down"])


def usual_rate(port: Port, ports: list[Port]) -> int:
    """Return the rate of most ports with the model and the link layer of a port: adapters of storage are others."""
    alike = [one.rate for one in ports if (one.layer, one.kind) == (port.layer, port.kind)]
    return Counter(alike).most_common(1)[0][0]


def names(ports: list[Port]) -> str:
    """Return the names of ports."""
    return ", ".join(port.name for port in ports)
