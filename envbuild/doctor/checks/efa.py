"""The node has the EFA devices of the target, and libfabric can use each."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.network import EFA, efa_devices, rdma_ports
from ..facts.node_kind import is_of_target
from ..facts.place import COMPUTE, device_hint, find_place, is_container, job_id
from ..host import Host
from ..model import ADMINISTRATOR, USER, Need, Result, failed, not_applicable, not_run, passed
from ..tools.fi_info import parse_endpoints, rdm_domains

GROUP = "network"
INSTALLER = "/opt/amazon/efa/"  # the folder of AWS' EFA installer
FI_INFO = ("fi_info", "-p", "efa", "-t", "FI_EP_RDM")


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare the PCI bus, the driver, libfabric and the target."""
    on_bus = len(efa_devices(host))
    driven = len({port.device for port in rdma_ports(host) if port.layer == EFA})
    if not on_bus and not driven and need.fabric != "efa":
        yield not_applicable("there is no EFA device")
        return
    count = max(on_bus, driven)
    wanted = need.efa or count
    container = is_container(host)
    if count < max(wanted, 1):
        of_node = find_place(host)[0] == COMPUTE and not job_id(host)
        yield failed(
            f"{count} EFA devices, and {need.source} has {wanted or 'some'}",
            ADMINISTRATOR if of_node else USER,
            "an instance with EFA interfaces; after a boot wait 15 s" if of_node else "use a node of that target",
            drains=is_of_target(host, need),
        )
        return
    if driven < count:
        fix = (
            f"{device_hint(host, '/dev/infiniband')}, and no MELLANOX_VISIBLE_DEVICES" if container else "modprobe efa"
        )
        yield failed(f"{driven} of {count} EFA devices have a driver here", USER if container else ADMINISTRATOR, fix)
        return
    if not host.programs.find(FI_INFO[0]):
        yield not_run(
            f"{count} EFA devices; fi_info is not installed, so libfabric is not checked",
            "export PATH=$PATH:/opt/amazon/efa/bin",
        )
        return
    output = host.output(*FI_INFO)
    endpoints, complete = parse_endpoints(output.text)
    found = len(rdm_domains(endpoints))
    if output.fault:
        yield not_run(output.fault)
    elif "No data available" in output.text + output.errors or found < count:
        fix = "ulimit -l unlimited; mount /dev/infiniband; one libibverbs alone: ldconfig -p | grep ibverbs"
        of_node = find_place(host)[0] == COMPUTE and not job_id(host)
        severity = ADMINISTRATOR if of_node else USER
        # that of a distribution may be built without EFA, and images have their own
        own = host.programs.find(FI_INFO[0]).startswith(INSTALLER)
        yield failed(f"libfabric finds {found} of {count} EFA devices", severity, fix, drains=own)
    elif not complete:
        yield not_run("the output of fi_info is truncated")
    else:
        yield passed(f"{count} EFA devices, efa {host.text('/sys/module/efa/version')}".rstrip())
