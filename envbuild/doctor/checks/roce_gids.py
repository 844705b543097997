"""A RoCE port has a GID of RoCE v2 with an IPv4 address: its index is NCCL_IB_GID_INDEX."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.network import ETHERNET, FOLDER, INFINIBAND, rdma_ports, uses_rdma
from ..host import Host
from ..model import ADMINISTRATOR, Need, Result, failed, not_run, passed
from ..ports import Port

GROUP = "network"
MAPPED = "0000:0000:0000:0000:0000:ffff:"  # an IPv4 address as a GID


def check(host: Host, need: Need) -> Iterator[Result]:
    """Search the index of each active port."""
    ports = [port for port in rdma_ports(host) if port.layer == ETHERNET and port.active]
    if not ports:
        yield not_run("there is no active RoCE port")
        return
    if need.fabric in ("", "infiniband") and any(port.layer == INFINIBAND and port.active for port in rdma_ports(host)):
        yield not_run("jobs use InfiniBand: " + ", ".join(port.name for port in ports) + " may be ports of storage")
        return
    if not uses_rdma(host, need):
        yield not_run("jobs send through no RDMA device here")
        return
    found = {port.name: gid_index(host, port) for port in ports}
    without = [name for name, index in found.items() if index is None]
    indices = {index for index in found.values() if index is not None}
    if not indices:
        fix = "ip address add ADDRESS dev INTERFACE, for the interface of the port (rdma link)"
        yield failed(f"no GID of RoCE v2 with an IPv4 address: {', '.join(without)}", ADMINISTRATOR, fix)
    elif len(indices) > 1:
        listed = ", ".join(f"{name} {index}" for name, index in found.items())
        yield failed(
            f"ports have different indices: {listed}",
            ADMINISTRATOR,
            "number the addresses of all interfaces in one order",
        )
    else:
        yield passed(
            f"NCCL_IB_GID_INDEX={indices.pop()}" + (f"; without an address: {', '.join(without)}" if without else "")
        )


def gid_index(host: Host, port: Port) -> int | None:
    """Return the first index of RoCE v2 with an IPv4 address."""
    place = f"{FOLDER}/{port.device}/ports/{port.number}"
    for name in host.names(f"{place}/gids"):
        if host.text(f"{place}/gid_attrs/types/{name}") == "RoCE v2" and host.text(f"{place}/gids/{name}").startswith(
            MAPPED
        ):
            return int(name)
    return None
