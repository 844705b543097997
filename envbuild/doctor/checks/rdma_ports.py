"""The node has the network ports of the target: number, rate, link layer; each is active."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..facts.gpus import pci_devices
from ..facts.kernel_messages import is_booting
from ..facts.network import EFA, INFINIBAND, rdma_ports
from ..facts.place import is_container
from ..host import Host
from ..missing_ports import (
    DRIVER,
    INFINIBAND_CONTROLLER,
    MELLANOX,
    adapters_without_device,
    no_ports,
    other_network,
    probe,
    too_few,
    wrong_layer,
)  # fmt: skip
from ..model import ADMINISTRATOR, HARDWARE, MINOR, Need, Result, failed, not_applicable, not_run, passed
from ..port_repair import STARTING, repair, repairs, states, urgency
from ..ports import Port

GROUP = "network"


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
            yield not_applicable("there is no InfiniBand or RoCE device")
        return
    if not ports:
        yield no_ports(host, need)
        return
    layer = need.layer or INFINIBAND
    enough = [port for port in ports if port.layer == layer and port.active and port.rate >= need.rate]
    if wanted and len(enough) >= wanted:
        yield enough_result(host, need, ports, enough)
        return
    if wanted and (result := other_network(need, ports, layer)):
        yield result
        return
    judged = [port for port in ports if port.layer == layer] if need.fabric == "infiniband" else ports
    down = sorted((port for port in judged if not port.active), key=urgency)
    active = [port for port in judged if port.active]
    usual = Counter(port.rate for port in active).most_common(1)[0][0] if active else 0
    slow = [port for port in active if port.rate < (need.rate if wanted and need.rate else usual_rate(port, active))]
    other = [port for port in ports if port.layer not in (layer, EFA)]
    if not wanted and active and down:
        fix = f"none, if it needs no cable; with the name of a target its ports are judged; {repair(down[0], active)}"
        yield failed(f"not active: {states(down)}; {len(active)} others are", MINOR, fix)
    elif down and (
        (wanted and len(active) < wanted) or (layer == INFINIBAND and any(port.layer == INFINIBAND for port in down))
    ):
        severity = port_severity(down[0])
        waits = {port.state for port in judged} <= {
            "init",
            "armed",
        }  # of the whole fabric: this node is as good as others
        starts = is_booting(host) and {port.physical for port in down} <= STARTING
        yield failed(f"not active: {states(down)}", severity, repairs(down, active), drains=not (waits or starts))
    elif wanted and len(active) < wanted and other and len(active) + len(other) >= wanted:
        yield wrong_layer(need, active, other, layer)
    elif wanted and len(active) < wanted:
        yield too_few(host, need, active, layer)
    elif slow:
        yield slow_result(need, slow, active, usual)
    elif not wanted and (hidden := adapters_without_device(host)):
        yield failed(f"adapters without an RDMA device: {', '.join(hidden)}", MINOR, probe(hidden))
    elif not active:
        yield not_run(f"no port is active: {names(ports)}")
    else:
        yield passed(f"{len(active)} active {'/'.join(sorted({port.layer for port in active}))} ports, {usual} Gb/s")


def enough_result(host: Host, need: Need, ports: list[Port], enough: list[Port]) -> Result:
    """Judge the ports that are not active beside enough active ones: one of the target's own is hidden by a port of
    storage with its rate. The site's names decide, then the board: the target's ports have one."""
    down = [port for port in ports if port not in enough and port.layer == enough[0].layer and not port.active]
    down.sort(key=urgency)
    named = {port.device for port in ports} & set(need.names)  # a target may have the names of another site
    own = [port for port in down if port.device in named]
    for board in dict.fromkeys(port.board for port in down if port.board and not named):
        alike = [port for port in down if port.board == board and port.physical not in ("disabled",)]
        active = sum(port.board == board for port in enough)
        if active < need.nics <= active + len(alike):
            own += alike
    others = [port for port in ports if port not in enough]  # of storage, or without a cable
    if own:
        detail = f"not active: {states(own)}; the {len(enough)} active ones are not all those of {need.source}"
        return failed(detail, port_severity(own[0]), repairs(own, enough))
    if hidden := adapters_without_device(host):
        return failed(f"adapters without an RDMA device: {', '.join(hidden)}", MINOR, probe(hidden))
    boards = {port.board for port in enough}
    if waiting := [port for port in down if port.physical == "polling" and port.board in boards and not named]:
        fix = f"none, if it needs no cable; {repair(waiting[0], enough)}"
        return failed(f"not active: {states(waiting)}; {len(enough)} others of this board are", MINOR, fix)
    more = f"; others: {', '.join(f'{one.name} {one.state} {one.rate} Gb/s' for one in others)}" if others else ""
    return passed(f"{len(enough)} active {enough[0].layer} ports, {need.rate or enough[0].rate} Gb/s{more}")


def port_severity(port: Port) -> str:
    """Return the severity of a port that is not active: one that is switched off is an administrator's act."""
    return HARDWARE if port.state == "down" and port.physical != "disabled" else ADMINISTRATOR


def slow_result(need: Need, slow: list[Port], active: list[Port], usual: int) -> Result:
    """Judge ports with a lower rate: one of them has a bad cable, all of them the network of the site."""
    wanted = need.nics if need.fabric == "infiniband" else 0
    look = f"mlxlink -d {slow[0].device}"
    if wanted and len(slow) == len(active) >= max(wanted, 2) and len({port.rate for port in active}) == 1:
        fix = f"none, if a cable serves two machines (200 of 400 Gb/s); another target; {look}"
        return failed(f"all {len(active)} ports have {usual} Gb/s, and {need.source} has {need.rate}", MINOR, fix)
    rates = ", ".join(f"{port.name} {port.rate} Gb/s" for port in slow)
    severity = HARDWARE if wanted else MINOR
    return failed(f"slower than {need.rate or usual} Gb/s: {rates}", severity, f"reseat the cable; {look}")


def usual_rate(port: Port, ports: list[Port]) -> int:
    """Return the rate of most ports with the model and the link layer of a port: adapters of storage are others."""
    alike = [one.rate for one in ports if (one.layer, one.kind) == (port.layer, port.kind)]
    return Counter(alike).most_common(1)[0][0]


def names(ports: list[Port]) -> str:
    """Return the names of ports."""
    return ", ".join(port.name for port in ports)
