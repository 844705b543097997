"""The user may open the device files of RDMA, and libibverbs finds the devices of the kernel."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.network import EFA, FOLDER, INFINIBAND, rdma_ports
from ..facts.place import device_hint, is_container
from ..host import Host
from ..model import ADMINISTRATOR, MINOR, USER, Need, Result, failed, not_applicable, not_run, passed
from ..tools.ibv_devinfo import parse_devinfo
from .gpu_devices import open_fault

GROUP = "network"
DEVINFO = ("ibv_devinfo",)


def check(host: Host, need: Need) -> Iterator[Result]:
    """Open /dev/infiniband/uverbs*, then compare with ibv_devinfo."""
    devices = host.names(FOLDER)
    if not devices:
        yield not_applicable("the kernel has no RDMA device")
        return
    files = [name for name in host.names("/dev/infiniband") if name.startswith("uverbs")]
    wrong = [f"{name}: {fault}" for name in files if (fault := open_fault(host, f"/dev/infiniband/{name}"))]
    container = is_container(host)
    severity = USER if container else ADMINISTRATOR
    inside = device_hint(host, "/dev/infiniband") if container else ""
    if len(files) < len(devices):
        fix = inside or "modprobe ib_uverbs; udevadm trigger --subsystem-match=infiniband_verbs --action=add"
        yield failed(f"{len(files)} of {len(devices)} device files in /dev/infiniband", severity, fix)
        return
    if wrong:
        yield failed("; ".join(wrong[:8]), severity, inside or "chmod 0666 /dev/infiniband/uverbs*")
        return
    if not host.programs.find(DEVINFO[0]):
        yield passed(f"{len(files)} device files open; ibv_devinfo is not installed")
        return
    output = host.output(*DEVINFO)
    found, complete = parse_devinfo(output.text)
    if output.fault or (found and not complete):
        yield not_run(output.fault or "the output of ibv_devinfo is truncated")
    elif lacking := [name for name in devices if name not in {one.name for one in found}]:
        detail = f"libibverbs finds {len(found)} of {len(devices)} devices, without {', '.join(lacking[:8])}"
        yield lacking_result(host, need, detail, lacking, container=container)
    else:
        yield passed(f"{len(found)} devices open")


def lacking_result(host: Host, need: Need, detail: str, lacking: list[str], *, container: bool) -> Result:
    """Judge devices without a library of their provider by whether jobs use them: an onboard adapter has none on many
    machines."""
    layer = need.layer or INFINIBAND
    used = [port for port in rdma_ports(host) if port.active and port.layer in (layer, EFA) and port.rate >= need.rate]
    left = [port for port in used if port.device not in lacking]
    if len(left) == len(used) or 0 < need.nics <= len(left):
        fix = f"none, if jobs do not use it; its driver: ls -l {FOLDER}/{lacking[0]}/device/driver"
        return failed(detail, MINOR, fix)
    fix = (
        "install the library of its provider (rdma-core, ibverbs-providers), in one version: ldconfig -p | grep ibverbs"
    )
    return failed(detail, USER if container else ADMINISTRATOR, fix)
