"""A network device can read the memory of a GPU: nvidia-peermem, or DMA buffers of the kernel."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.cpu import is_older, kernel
from ..facts.gpus import driver_version, has_open_module, is_board, models
from ..facts.network import EFA, FOLDER, rdma_ports, uses_rdma
from ..host import Host
from ..model import ADMINISTRATOR, MINOR, Need, Result, failed, not_applicable, passed

GROUP = "network"
PEERMEM = ("/sys/module/nvidia_peermem/version", "/sys/kernel/mm/memory_peers/nv_mem/version")  # as NCCL and UCX do
# EFA needs no peer memory of MLNX_OFED: its driver finds the functions of NVIDIA's itself, or by a module of its own,
# and names it in "p2p" (amzn/amzn-drivers: efa_p2p.c, efa_nv_peermem)
EFA_WAYS = ("/sys/module/efa_nv_peermem",)
DMABUF = "5.12"  # kernel


def check(host: Host, need: Need) -> Iterator[Result]:
    """Search either way."""
    ports = rdma_ports(host)
    if not driver_version(host) or not ports:
        yield not_applicable("it needs an NVIDIA driver and an RDMA device")
        return
    if not uses_rdma(host, need):
        yield not_applicable("jobs send through no RDMA device here")
        return
    if models(host) and all("geforce" in name.lower() for name in models(host)):
        yield not_applicable("GeForce has no GPUDirect RDMA")
        return
    # cards work without it, as their jobs use the network less; boards are made for it. Jobs run, and are slower: a
    # site may have chosen so, and no node is drained
    severity = ADMINISTRATOR if any(is_board(name) for name in models(host)) else MINOR
    efa = all(port.layer == EFA for port in ports)
    found = next((path for path in (EFA_WAYS if efa else PEERMEM) if host.has(path)), "")
    dmabuf = has_open_module(host) and bool(kernel(host)) and not is_older(kernel(host), DMABUF)
    if found:
        yield passed(f"{found.split('/')[3]} is loaded" if "module" in found else "nv_mem is loaded")
    elif efa and any("nv" in host.text(f"{FOLDER}/{port.device}/device/p2p").lower() for port in ports):
        yield passed("the EFA driver reads the memory of GPUs")
    elif dmabuf:
        yield passed("DMA buffers: open kernel module, kernel >= 5.12")
    elif efa:
        fix = "modprobe efa_nv_peermem, of the EFA installer; or install the open kernel module of NVIDIA's driver"
        detail = "neither efa_nv_peermem nor DMA buffers: data is copied through the host's memory"
        yield failed(detail, severity, fix, drains=False)
    else:
        fix = "modprobe nvidia-peermem, after the RDMA drivers; or install the open kernel module"
        detail = "neither nvidia-peermem nor DMA buffers: data is copied through the host's memory"
        yield failed(detail, severity, fix, drains=False)
