"""A RoCE port has a GID of RoCE v2 with an address: its index is NCCL_IB_GID_INDEX."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from ..facts.network import ETHERNET, FOLDER, INFINIBAND, rdma_ports, uses_rdma
from ..host import Host
from ..model import ADMINISTRATOR, MINOR, Need, Result, failed, not_applicable, passed
from ..ports import Port

GROUP = "network"
MAPPED = "0000:0000:0000:0000:0000:ffff:"  # an IPv4 address as a GID


def check(host: Host, need: Need) -> Iterator[Result]:
    """Search the index of each active port."""
    ports = [port for port in rdma_ports(host) if port.layer == ETHERNET and port.active]
    if not ports:
        yield not_applicable("there is no active RoCE port")
        return
    if need.fabric in ("", "infiniband") and any(port.layer == INFINIBAND and port.active for port in rdma_ports(host)):
        yield not_applicable(
            "jobs use InfiniBand: " + ", ".join(port.name for port in ports) + " may be ports of storage"
        )
        return
    if not uses_rdma(host, need):
        yield not_applicable("jobs send through no RDMA device here")
        return
    result = judge(host, ports)
    # without a target it is not known whether jobs use these ports
    yield replace(result, drains=bool(need.fabric))


def judge(host: Host, ports: list[Port]) -> Result:
    """Compare the ports of one board and rate: a frontend or a port of storage may have other indices, or none."""
    mapped = {port: gid_index(host, port, is_mapped) for port in ports}
    if all(index is None for index in mapped.values()):
        routed = {port: gid_index(host, port, is_routed) for port in ports}
        if all(index is None for index in routed.values()):
            fix = "ip address add ADDRESS dev INTERFACE, for the interface of the port (rdma link)"
            return failed(f"no GID of RoCE v2 with an address: {names(ports)}", ADMINISTRATOR, fix)
        mapped, variable = routed, "NCCL_IB_ADDR_FAMILY=AF_INET6, "
    else:
        variable = ""
    without = [port for port in ports if mapped[port] is None]
    if wrong := [port for port in without if 2 * known(mapped, alike(port, ports)) > len(alike(port, ports))]:
        fix = f"rdma link show {wrong[0].device}/{wrong[0].number}; ip address add ADDRESS dev its INTERFACE"
        return failed(f"no address, and others of the board have one: {names(wrong)}", ADMINISTRATOR, fix)
    if any(len({mapped[one] for one in alike(port, ports)} - {None}) > 1 for port in ports):
        listed = ", ".join(f"{port.name} {index}" for port, index in mapped.items() if index is not None)
        fix = "unset NCCL_IB_GID_INDEX: NCCL 2.21 and newer choose the index of each port"
        return failed(f"ports have different indices: {listed}", MINOR, fix)
    groups = Counter(index for index in mapped.values() if index is not None)
    usual = groups.most_common(1)[0][0]
    others = [f"{port.name} {index}" for port, index in mapped.items() if index not in (None, usual)]
    more = f"; others: {', '.join(others)}" if others else ""
    more += f"; without an address: {names(without)}" if without else ""
    return passed(f"{variable}NCCL_IB_GID_INDEX={usual}{more}")


def alike(port: Port, ports: list[Port]) -> list[Port]:
    """Return the ports with the board and the rate of a port."""
    return [one for one in ports if (one.kind, one.board, one.rate) == (port.kind, port.board, port.rate)]


def known(found: dict[Port, int | None], ports: list[Port]) -> int:
    """Return the number of ports that have an index."""
    return sum(found[port] is not None for port in ports)


def names(ports: list[Port]) -> str:
    """Return the names of ports."""
    return ", ".join(port.name for port in ports)


def is_mapped(gid: str) -> bool:
    """Return whether a GID is an IPv4 address."""
    return gid.startswith(MAPPED)


def is_routed(gid: str) -> bool:
    """Return whether a GID is an address that is not of the link alone."""
    return bool(gid.strip("0:")) and not gid.startswith("fe80:")


def gid_index(host: Host, port: Port, fits: Callable[[str], bool]) -> int | None:
    """Return the first index of RoCE v2 with an address that fits."""
    place = f"{FOLDER}/{port.device}/ports/{port.number}"
    for name in host.names(f"{place}/gids"):
        gid = host.text(f"{place}/gids/{name}")
        if fits(gid) and host.text(f"{place}/gid_attrs/types/{name}") == "RoCE v2":
            return int(name)
    return None
