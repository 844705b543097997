"""Ports of the network that are not active: what each waits for, and what makes it active."""

from __future__ import annotations

from .ports import Port

# what a link does on its way (drivers/infiniband/core/sysfs.c)
STARTING = {"polling", "training", "linkup", "portconfigurationtraining"}
FIXES = {
    "init": "no subnet manager runs in this fabric: start that of the switch, or opensm on one server",
    "armed": "the subnet manager has not ended its work: sminfo",
    "down": "cable, transceiver or port of the switch: ibstat {device}; mlxlink -d {device}",
    "disabled": "it is switched off: ibportstate -C {device} -D 0 {port} enable; RoCE: "
    "ip link set INTERFACE up, that of: rdma link show {device}/{port}",
}


def states(ports: list[Port]) -> str:
    """Return ports with what they wait for."""
    return ", ".join(f"{port.name} {port.state} {port.physical}".strip() for port in ports)


def urgency(port: Port) -> tuple[bool, bool, int]:
    """Return by what ports are sorted: those without a cable or switched off last, second ports after first ones."""
    return port.physical == "disabled", port.state != "down", port.number


def repairs(ports: list[Port], active: list[Port]) -> str:
    """Return what makes ports active, of each state once; those that are switched off only where no other is down."""
    chosen = [port for port in ports if port.physical != "disabled"] or ports
    first = {port.state: port for port in reversed(chosen)}
    return "; ".join(repair(port, active) for port in chosen if first[port.state] is port)


def repair(port: Port, active: list[Port]) -> str:
    """Return what makes a port active."""
    if port.state == "init" and any(one.layer == port.layer for one in active):  # a subnet manager made those active
        log = "the subnet manager's log about this port"
        return f"sminfo -C {port.device} -P {port.number}; {log}; the switch that it is connected to"
    fix = FIXES["disabled"] if port.physical == "disabled" else FIXES.get(port.state, FIXES["down"])
    return fix.format(device=port.device, port=port.number)
