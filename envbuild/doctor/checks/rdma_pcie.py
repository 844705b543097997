"""The PCIe link of each adapter is that of the others of its board: a narrow or slow one halves the port's rate.

A machine may be older than its adapters: links that are all alike are not a fault."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.network import EFA, FOLDER, rdma_ports
from ..facts.pcie import link_rate
from ..host import Host
from ..model import HARDWARE, MINOR, Need, Result, failed, not_applicable, not_run, passed
from ..ports import Port

GROUP = "network"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare the rates of the links with the adapters of one board."""
    ports = [port for port in rdma_ports(host) if port.layer != EFA]
    rates = {port.device: link_rate(host, "device", f"{FOLDER}/{port.device}") for port in ports}
    if not any(rates.values()):
        yield (
            not_run("no adapter states its PCIe link")
            if ports
            else not_applicable("there is no InfiniBand or RoCE device")
        )
        return
    weak: dict[str, tuple[Port, int]] = {}
    for port in ports:
        most = max(rates[one.device] for one in ports if (one.kind, one.board) == (port.kind, port.board))
        if 0 < rates[port.device] < most:
            weak[port.device] = port, most
    if weak:
        listed = ", ".join(f"{name} {rates[name]} of {most} Gb/s" for name, (_, most) in weak.items())
        # of the target's ports, where the link is slower than they send
        halved = any(need.rate and port.rate >= need.rate > rates[name] for name, (port, _) in weak.items())
        fix = "drain the node; reseat the adapter or its riser" if halved else "another slot; reseat the adapter"
        yield failed(f"PCIe link: {listed}", HARDWARE if halved else MINOR, fix)
    else:
        yield passed(f"PCIe link of {'/'.join(map(str, sorted(set(rates.values()) - {0})))} Gb/s")
